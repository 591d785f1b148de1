"""The rows of ``aliquot slurm``: files for a node, checks, and changes that Slurm takes part in."""

from __future__ import annotations

from aliquot.cli.options import Command
from aliquot.cli.slurm_apply_commands import APPLYING
from aliquot.cli.slurm_check_commands import CHECK
from aliquot.cli.slurm_cloud_commands import CLOUD
from aliquot.cli.slurm_control_commands import CONTROL
from aliquot.cli.slurm_render_commands import DCGM, RENDER, TASK_PROLOG

SLURM = Command(
    "slurm",
    "Slurm nodes: gres.conf, checks, safe changes, layouts on demand",
    text="Through Slurm's own commands, or slurmrestd (ALIQUOT_SLURM=scontrol|rest chooses).",
    children=(RENDER, CHECK, *APPLYING, *CONTROL, *CLOUD, TASK_PROLOG, DCGM),
)
