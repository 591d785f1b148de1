"""The rows of ``aliquot slurm``: files for a node, checks, and changes that Slurm takes part in."""

from __future__ import annotations

from aliquot.cli.framework.command_model import CliCommand
from aliquot.cli.slurm.table_apply import APPLYING
from aliquot.cli.slurm.table_check import CHECK
from aliquot.cli.slurm.table_cloud import CLOUD
from aliquot.cli.slurm.table_controller import CONTROL
from aliquot.cli.slurm.table_render import DCGM, RENDER, TASK_PROLOG

SLURM = CliCommand(
    "slurm",
    "Slurm nodes: gres.conf, checks, safe changes, layouts on demand",
    text="Through Slurm's own commands, or slurmrestd (ALIQUOT_SLURM=scontrol|rest chooses).",
    children=(RENDER, CHECK, *APPLYING, *CONTROL, *CLOUD, TASK_PROLOG, DCGM),
)
