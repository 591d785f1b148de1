"""The rows of ``aliquot slurm``: files for a node, checks, and changes that Slurm takes part in."""

from __future__ import annotations

from aliquot.cli.options import Command, Option
from aliquot.cli.slurm_control_commands import CONTROL

NODE_NAME = Option(
    "--node-name",
    help="the node's name in Slurm; this machine's host name if not given",
    metavar="NAME",
    env="SLURMD_NODENAME",
)

SLURM = Command(
    "slurm",
    "Slurm nodes: gres.conf, checks, safe changes, layouts on demand",
    text="Through Slurm's own commands, or slurmrestd (ALIQUOT_SLURM=scontrol|rest chooses).",
    children=(*CONTROL,),
)
