"""Options offer the choices that the types define. The command tables import no model, so that help is fast."""

from __future__ import annotations

from typing import get_args

from aliquot.cli.framework.command_model import POLICY, CliCommand
from aliquot.cli.libvirt.table import _MULTI
from aliquot.cli.slurm import table_apply, table_render
from aliquot.core.model.plan import HELD_POLICIES
from aliquot.core.planner.vgpu.vm_rules import VmPolicy
from aliquot.slurm.gpus.gres_types import STYLES
from aliquot.slurm.node.request import JobsPolicy


def test_options_offer_the_words_of_their_types() -> None:
    assert POLICY.choices == HELD_POLICIES
    assert _MULTI.choices == get_args(VmPolicy)
    reported = {
        option.names[-1]: option.choices
        for table in (table_apply, table_render)
        for command in vars(table).values()
        if isinstance(command, CliCommand)
        for option in command.options
    }
    assert reported["--jobs"] == get_args(JobsPolicy)
    assert reported["--type-style"] == STYLES
