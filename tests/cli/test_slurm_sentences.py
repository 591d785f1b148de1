"""What ``aliquot slurm`` says of what became of a change, and of files that are not there."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest

from aliquot.agent.slurm.change import Settings
from aliquot.agent.slurm.world import Outcome
from aliquot.cli.slurm_apply import _sentence, _unheard

from .conftest import Run

DRAINED = Outcome("undone", "n1", "static", "gpu:a100:2", drained=True, reason="aliquot: why", why="why", exit_code=20)


def test_a_node_that_is_drained_is_told_so_where_nothing_was_to_be_done() -> None:
    outcome = Outcome("nothing", "n1", "static", "gpu:a100:2", drained=True, reason="bob: fan")
    assert _sentence(outcome) == "nothing to do: n1 has gpu:a100:2; it stays drained: bob: fan"
    assert _sentence(Outcome("nothing", "n1", "static", "gpu:a100:2")) == "nothing to do: n1 has gpu:a100:2"


def test_only_a_node_that_slurm_knows_is_to_be_resumed() -> None:
    assert "scontrol update nodename=n1 state=resume" in _sentence(DRAINED)
    unknown = Outcome("undone", "n1", "dynamic", "gpu:a100:2", drained=True, why="why", exit_code=20)
    said = _sentence(unknown)
    assert "Slurm does not know it, as before" in said
    assert "scontrol" not in said


@pytest.mark.parametrize("words", [("apply", "-f"), ("demand", "-f"), ("controller", "-f"), ("check", "--script")])
def test_a_file_that_is_not_there_says_where_to_look(run: Run, tmp_path: Path, words: tuple[str, ...]) -> None:
    result = run("slurm", *words, str(tmp_path / "gone.yaml"))
    assert (result.code, result.out) == (2, "")
    assert "No such file or directory" in result.err
    assert f"ls -l {tmp_path}" in result.err


def test_a_command_that_is_not_heard_beside_continue_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    kept = Settings("n1", start="start", stop="stop")
    _unheard(Namespace(slurmd_start=None, slurmd_stop="stop"), kept)
    assert capsys.readouterr().err == ""
    _unheard(Namespace(slurmd_start="start", slurmd_stop="another"), kept)
    said = capsys.readouterr().err
    assert "--slurmd-stop is the one on record, not this one" in said
    assert "--slurmd-start" not in said


def test_nobody_on_a_gpu_is_said(run: Run, tmp_path: Path) -> None:
    result = run("slurm", "dcgm", "list", "--dir", str(tmp_path))
    assert (result.code, result.err) == (0, "")
    assert "no job has a GPU" in result.out
