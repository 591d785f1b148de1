"""Messages of ``aliquot slurm`` about results of a change and about missing files."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest
from msgspec.structs import replace

from aliquot.cli.slurm.apply import _rerun
from aliquot.cli.slurm.outcome_text import outcome_text
from aliquot.slurm.node.context import SlurmChangeOutcome
from aliquot.slurm.node.request import SlurmNodeSettings

from .conftest import Run

DRAINED = SlurmChangeOutcome(
    "undone", "n1", "static", "gpu:a100:2", drained=True, reason="aliquot: why", why="why", exit_code=20
)


def test_a_drained_node_is_reported_where_nothing_was_to_be_done() -> None:
    outcome = SlurmChangeOutcome("nothing", "n1", "static", "gpu:a100:2", drained=True, reason="bob: fan")
    assert outcome_text(outcome) == "nothing to do: n1 has gpu:a100:2; it stays drained: bob: fan"
    assert (
        outcome_text(SlurmChangeOutcome("nothing", "n1", "static", "gpu:a100:2")) == "nothing to do: n1 has gpu:a100:2"
    )


def test_only_a_node_that_slurm_knows_is_to_be_resumed() -> None:
    assert "scontrol update nodename=n1 state=resume" in outcome_text(DRAINED)
    unknown = SlurmChangeOutcome("undone", "n1", "dynamic", "gpu:a100:2", drained=True, why="why", exit_code=20)
    answer = outcome_text(unknown)
    assert "Slurm does not have it, as before" in answer
    assert "scontrol" not in answer


def test_a_reason_that_slurm_has_as_well_is_printed_once() -> None:
    reason = "aliquot: slurmd does not start; undone, the previous layout is restored"
    outcome = replace(DRAINED, why="slurmd does not start", reason=reason)
    assert outcome_text(outcome) == (
        "undone: slurmd does not start\n"
        "  n1 has gpu:a100:2 as before, and stays drained with that reason\n"
        "  next     scontrol update nodename=n1 state=resume"
    )
    assert "stays drained: bob: fan" in outcome_text(replace(outcome, reason="bob: fan"))


def test_an_undo_of_an_untouched_node_says_that_it_takes_jobs() -> None:
    outcome = SlurmChangeOutcome("undone", "n1", "static", "gpu:a100:2", why="--undo was requested")
    assert outcome_text(outcome) == "undone: --undo was requested\n  n1 has gpu:a100:2 as before; it takes jobs"


@pytest.mark.parametrize("words", [("apply", "-f"), ("demand", "-f"), ("controller", "-f"), ("check", "--script")])
def test_a_file_that_is_not_there_says_where_to_look(run: Run, tmp_path: Path, words: tuple[str, ...]) -> None:
    result = run("slurm", *words, str(tmp_path / "gone.yaml"))
    assert (result.code, result.out) == (2, "")
    assert "No such file or directory" in result.err
    assert f"ls -l {tmp_path}" in result.err


def test_commands_beside_continue_take_the_place_of_those_on_record() -> None:
    kept = SlurmNodeSettings("n1", start="start", stop="stop", push="push", node_conf="CPUs=2")
    nothing = dict.fromkeys(("slurmd_unit", "slurmd_start", "slurmd_stop", "slurmctld_restart", "push"))
    assert _rerun(Namespace(**nothing), kept) == kept
    typed = _rerun(Namespace(**{**nothing, "slurmd_stop": "another"}), kept)
    assert typed == replace(kept, stop="another")


def test_an_idle_gpu_is_reported(run: Run, tmp_path: Path) -> None:
    result = run("slurm", "dcgm", "list", "--dir", str(tmp_path))
    assert (result.code, result.err) == (0, "")
    assert "no recorded job has a GPU" in result.out
