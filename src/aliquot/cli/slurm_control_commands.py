"""The rows of ``aliquot slurm`` that work on a whole cluster, or that Slurm itself calls."""

from __future__ import annotations

from aliquot.cli.options import Command

CONTROL: tuple[Command, ...] = ()
