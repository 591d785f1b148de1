"""A way to the cluster: its commands, or slurmrestd."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from aliquot.integrations.slurm.port import Slurm


@contextmanager
def opened(choice: str = "", conf: str = "") -> Iterator[Slurm]:
    """The cluster of ``conf`` (else of SLURM_CONF, else Slurm's default), through its commands."""
    from aliquot.integrations.slurm.commands import Commands

    yield Commands(conf)
