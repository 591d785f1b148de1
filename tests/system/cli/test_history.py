"""``aliquot history``: what a person reads of the past."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from aliquot.sim import lifecycle as control
from aliquot.sim.client import SimClient

from .conftest import Run


@pytest.fixture
def node(state: str) -> str:
    return control.start(state, "h100-80gb-hbm3*2", None)


def test_nothing_yet(run: Run, node: str) -> None:
    result = run("history", "--node", node)
    assert (result.code, result.out) == (0, "")
    assert "nothing is recorded" in result.err


def test_what_was_done_by_whom_and_how_it_ended(run: Run, node: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 0)
    monkeypatch.setenv("SUDO_USER", "ann")
    assert run("apply", "--node", node, "--gpu", "0", "--mig", "3g.40gb").code == 0
    SimClient(os.environ["ALIQUOT_STATE_DIR"], node).inject_fault(
        "fail", call="GpuInstanceCreateComputeInstance", code=999, calls=1
    )
    assert run("apply", "--node", node, "--gpu", "0", "--mig", "2g.20gb*3").code == 40
    text = run("history", "--node", node).out
    failed, done = text.split("\n\n")
    assert re.match(
        r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  by ann  failed, and undone: the former state is back  in \d", failed
    )
    assert "  did      GPU" in failed
    assert "destroyed 3g.40gb" in failed
    assert "  why      creating" in failed
    assert "  undid    GPU" in failed
    assert "created 3g.40gb" in failed.partition("undid")[2]
    assert re.match(r"\S+ \S+  by ann  done", done)
    assert "created 3g.40gb" in done


def test_a_named_config_is_named_and_the_newest_is_asked_for(run: Run, node: str, tmp_path: Path) -> None:
    wish = tmp_path / "wish.yaml"
    wish.write_text("version: aliquot/v1\nconfigs:\n  train:\n    - gpus: {index: [0]}\n      mig: {3g.40gb: 1}\n")
    assert run("apply", "--node", node, "--gpu", "1", "--mig", "1g.10gb").code == 0
    assert run("apply", "--node", node, "-f", str(wish)).code == 0
    result = run("history", "--node", node, "--most", "1")
    assert "  wish     train" in result.out
    assert "1 older ones are left out" in result.err or "1 older one is left out" in result.err
    document = run("history", "--node", node, "--most", "1", "-o", "json").document
    assert (document["kind"], document["node"], document["more"]) == ("History", node, 1)
    (change,) = document["changes"]
    assert (change["name"], change["outcome"], len(change["gpus"])) == ("train", "done", 1)
    assert change["ended"] >= change["at"] > 0


def test_a_count_that_makes_no_sense_and_a_node_that_is_not_there(run: Run, node: str) -> None:
    assert run("history", "--node", node, "--most", "0").code == 2
    assert run("history", "--node", node, "--most", "x").code == 2
    assert run("history", "--node", "nobody").code == 20


def test_a_journal_that_cannot_be_read_is_said(run: Run, node: str, state: str) -> None:
    folder = Path(control.folder(state, node))
    (folder / "change-journal.jsonl").mkdir()
    result = run("history", "--node", node)
    assert result.code in (0, 20)
    assert "Traceback" not in result.err


def test_many_nodes_are_started_by_one_command(run: Run, state: str) -> None:
    result = run("sim", "start", "a30", "--count", "3", "--name", "crowd")
    assert (result.code, result.out.strip()) == (0, "crowd-01 to crowd-03")
    assert run("sim", "start", "a30", "--count", "3", "--name", "crowd").code == 2
    assert run("sim", "start", "a30", "--count", "0").code == 2
    document = run("sim", "start", "a30", "--count", "2", "--name", "other", "-o", "json").document
    assert document["nodes"] == ["other-01", "other-02"]
