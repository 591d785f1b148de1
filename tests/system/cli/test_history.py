"""``aliquot history``: output about past changes."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from aliquot.cli import command_table
from aliquot.cli.framework import parser
from aliquot.sim import lifecycle as control
from aliquot.sim.client import SimClient

from .conftest import Run


@pytest.fixture
def node(state: str) -> str:
    return control.start(state, "h100-80gb-hbm3*2", None)


def test_nothing_yet(run: Run, node: str) -> None:
    result = run("history", "--sim", node)
    assert (result.code, result.out) == (0, "")
    assert "has no recorded changes" in result.err


def test_what_was_done_by_whom_and_how_it_ended(run: Run, node: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 0)
    monkeypatch.setenv("SUDO_USER", "ann")
    assert run("apply", "--sim", node, "--gpu", "0", "--mig", "3g.40gb").code == 0
    SimClient(os.environ["ALIQUOT_STATE_DIR"], node).inject_fault(
        "fail", call="GpuInstanceCreateComputeInstance", code=999, calls=1
    )
    assert run("apply", "--sim", node, "--gpu", "0", "--mig", "2g.20gb*3").code == 40
    text = run("history", "--sim", node).out
    failed, done = text.split("\n\n")
    assert re.match(
        r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  by ann  failed, and undone: the previous state is restored  in \d", failed
    )
    assert "  did      GPU" in failed
    assert "destroyed 3g.40gb" in failed
    assert "  why      creating" in failed
    assert "  undid    GPU" in failed
    assert "created 3g.40gb" in failed.partition("undid")[2]
    assert re.match(r"\S+ \S+  by ann  done", done)
    assert "created 3g.40gb" in done


def test_a_named_config_is_named_and_the_newest_is_asked_for(run: Run, node: str, tmp_path: Path) -> None:
    request = tmp_path / "wish.yaml"
    request.write_text("version: aliquot/v1\nconfigs:\n  train:\n    - gpus: {index: [0]}\n      mig: {3g.40gb: 1}\n")
    assert run("apply", "--sim", node, "--gpu", "1", "--mig", "1g.10gb").code == 0
    assert run("apply", "--sim", node, "-f", str(request)).code == 0
    result = run("history", "--sim", node, "--limit", "1")
    assert "  request  train" in result.out
    assert "1 older change is left out" in result.err
    document = run("history", "--sim", node, "--limit", "1", "-o", "json").document
    assert (document["kind"], document["node"], document["more"]) == ("History", node, 1)
    (change,) = document["changes"]
    assert (change["name"], change["outcome"], len(change["gpus"])) == ("train", "done", 1)
    assert change["ended"] >= change["at"] > 0


def test_the_command_line_is_kept(run: Run, node: str) -> None:
    assert run("--sim", node, "apply", "--gpu", "0", "--mig", "3g.40gb,1g.10gb", "--wait-for-lock", "5").code == 0
    typed = ["aliquot", "apply", "--sim", node, "--gpu", "0", "--mig", "3g.40gb,1g.10gb", "--wait-for-lock", "5"]
    assert f"  command  {' '.join(typed)}\n" in run("history", "--sim", node).out
    assert run("history", "--sim", node, "-o", "json").document["changes"][0]["command"] == typed
    assert f"`{' '.join(typed)}`" in run("history", "--sim", node, "-o", "markdown").out


@pytest.mark.parametrize(
    ("typed", "kept"),
    [
        ("slurm apply --gpu 0 --push", ["--gpu", "0", "--push", "***"]),
        ("slurm apply --gpu 0 --push={}", ["--gpu", "0", "--push=***"]),
        ("usage --dcgm http://ann:{}@host:9400/metrics", ["--dcgm", "http://***@host:9400/metrics"]),
    ],
)
def test_no_secret_is_kept(typed: str, kept: list[str]) -> None:
    words = typed.format("s3cret").split()
    words += ["curl -H 's3cret'"] if typed.endswith("--push") else []
    found = parser.find(command_table.ROOT, words)
    assert list(parser.recorded_words(found)[len(found.path) :]) == kept


def test_a_long_command_line_and_bytes_are_kept_in_part() -> None:
    found = parser.find(command_table.ROOT, ["plan", "-f", "a\udcffb", *["--gpu", "0"] * 900])
    words = parser.recorded_words(found)
    assert (words[:4], words[-1]) == (("aliquot", "plan", "-f", "a?b"), "...")
    assert sum(map(len, words)) <= 2003


def test_a_count_that_makes_no_sense_and_a_node_that_is_not_there(run: Run, node: str) -> None:
    assert run("history", "--sim", node, "--limit", "0").code == 2
    assert run("history", "--sim", node, "--limit", "x").code == 2
    assert run("history", "--sim", "nobody").code == 20


def test_a_journal_that_cannot_be_read_is_reported(run: Run, node: str, state: str) -> None:
    folder = Path(control.folder(state, node))
    (folder / "change-journal.jsonl").mkdir()
    result = run("history", "--sim", node)
    assert result.code in (0, 20)
    assert "Traceback" not in result.err


def test_many_nodes_are_started_by_one_command(run: Run, state: str) -> None:
    result = run("sim", "start", "a30", "--count", "3", "--name", "crowd")
    assert (result.code, result.out.strip()) == (0, "crowd-01 to crowd-03")
    assert run("sim", "start", "a30", "--count", "3", "--name", "crowd").code == 2
    assert run("sim", "start", "a30", "--count", "0").code == 2
    document = run("sim", "start", "a30", "--count", "2", "--name", "other", "-o", "json").document
    assert document["nodes"] == ["other-01", "other-02"]
