"""The progress bar of an apply, as a terminal shows it. Other outputs never contain it."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from aliquot.cli.framework import progress, streams
from aliquot.core.config.select.command_line import adhoc
from aliquot.core.engine.action_text import describe, progress_line
from aliquot.core.model.actions import Reset
from aliquot.core.model.plan import Policy
from aliquot.core.planner.plan import plan
from aliquot.node.connect import connect
from aliquot.sim import lifecycle as control
from aliquot.sim.client import SimClient
from support import forkserver
from support.terminal import Played

from .conftest import SOURCE, Sim

GOLDEN = Path(__file__).parent / "golden"
WRITE = os.environ.get("ALIQUOT_GOLDEN") == "write"
BAR = re.compile(r"^\[[#.]{24}\]  \d+ of \d+ acts   \d+\.\d s")


@pytest.fixture
def slow(state: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Start two A100 in MIG mode whose driver is as slow as a real one."""
    control.start(state, "a100-sxm4-40gb*2", "slow", latency="measured")
    monkeypatch.setenv("ALIQUOT_SIM", "slow")
    forkserver.run(command("--gpu", "0-1", "--mig", "empty"), env=environment(), check=True, capture_output=True)
    yield "slow"
    control.stop(state, "slow")


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "aliquot", "apply", *words]


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": SOURCE, **more}


def watched(play: Played) -> list[list[str]]:
    """Return every screen that was visible until the program ended."""
    seen: list[list[str]] = []
    while play.process.poll() is None:
        play.read()
        if not seen or seen[-1] != play.terminal.lines:
            seen.append(play.terminal.lines)
    play.ended()
    return seen


@pytest.mark.slow
def test_a_terminal_shows_the_progress_and_keeps_the_lines_alone(slow: str) -> None:
    shown = Played("apply", "--yes", "--gpu", "0-1", "--mig", "1g.5gb*7", columns=100, rows=40)
    try:
        seen = watched(shown)
    finally:
        shown.close()
    bars = [[line for line in screen if BAR.match(line)] for screen in seen]
    assert any(bars)
    assert all(len(found) <= 1 for found in bars)
    workers = {line[:7] for screen in seen for line in screen if " of 7  creating " in line}
    assert workers == {"  GPU 0", "  GPU 1"}
    assert shown.process.returncode == 0
    *lines, last = shown.terminal.text.splitlines()
    assert last == "done: kept 0, destroyed 0, created 14; verified by a fresh read"
    made = {f"GPU 0000:0{gpu}:00.0: created 1g.5gb at {n}:1" for gpu in (1, 2) for n in range(7)}
    assert (set(lines), len(lines)) == (made, 14)


@pytest.mark.slow
def test_what_was_done_before_says_how_long_it_will_take(slow: str) -> None:
    for desired_gpu in ("3g.20gb,1g.5gb", "empty"):
        forkserver.run(command("--gpu", "1", "--mig", desired_gpu), env=environment(), check=True, capture_output=True)
    shown = Played("apply", "--yes", "--gpu", "0", "--mig", "3g.20gb,1g.5gb,1g.5gb", columns=100, rows=20)
    try:
        seen = watched(shown)
    finally:
        shown.close()
    bars = [line for screen in seen for line in screen if BAR.match(line)]
    assert bars
    assert all(
        re.search(r"  \d of 3 acts   \d\.\d s of about \d\.\d s   (creating|reading again)", line) for line in bars
    )


@pytest.mark.slow
def test_a_failure_and_the_way_back_are_shown(state: str, slow: str) -> None:
    node = SimClient(state, slow)
    node.inject_fault("fail", call="DeviceCreateGpuInstanceWithPlacement", code=999, calls=1, nth=4)
    node.close()
    shown = Played("apply", "--yes", "--gpu", "0", "--mig", "1g.5gb*7", columns=110, rows=20)
    try:
        seen = watched(shown)
    finally:
        shown.close()
    assert shown.process.returncode == 40
    assert any("going back: an act failed" in line for screen in seen for line in screen)
    assert not [line for line in shown.terminal.text.splitlines() if "acts" in line]


@pytest.mark.parametrize("environ", [{"NO_COLOR": "1"}, {"TERM": "dumb"}, {"TERM": ""}])
def test_a_terminal_without_orders_gets_the_lines_of_always(environ: dict[str, str], a100: Sim) -> None:
    shown = Played("apply", "--yes", "--gpu", "0", "--mig", "1g.5gb*2", environment=environ)
    try:
        assert shown.ended() == 0
    finally:
        shown.close()
    assert "\x1b" not in shown.raw
    assert "created 1g.5gb" in shown.raw


@pytest.mark.slow
def test_no_terminal_no_bar(slow: str) -> None:
    done = forkserver.run(
        command("--gpu", "0", "--mig", "1g.5gb*4"), env=environment(TERM="xterm"), capture_output=True, text=True
    )
    assert done.returncode == 0
    assert "\x1b" not in done.stderr + done.stdout
    assert [line.partition(" at ")[0] for line in done.stderr.splitlines()] == ["GPU 0000:01:00.0: created 1g.5gb"] * 4


@pytest.mark.slow
def test_stdout_is_the_result_alone(slow: str, tmp_path: Path) -> None:
    with (tmp_path / "out").open("w") as out:
        shown = Played("apply", "--yes", "--gpu", "0", "--mig", "1g.5gb*4", "-o", "json", stdout=out.fileno())
        try:
            seen = watched(shown)
        finally:
            shown.close()
    assert (tmp_path / "out").read_text().startswith('{\n  "apiVersion"')
    assert any(BAR.match(line) for screen in seen for line in screen)


def test_frames(a100: Sim) -> None:
    # Covers each stage of a plan for two GPUs and for one, at several widths.
    control.start(a100.node.state_dir, "a100-sxm4-40gb*2", "two")
    with connect("two", state_dir=a100.node.state_dir) as connection:
        inventory = connection.backend.read()
    control.stop(a100.node.state_dir, "two")
    messages: list[str] = []
    for gpus, expected in (["0", "1"], None), (["1"], 11.2):
        made = plan(inventory, adhoc(gpus, ["3g.20gb,1g.5gb"], inventory), Policy())
        state = progress.initial_state(made, inventory, expected)

        def frame(seconds: float, columns: int = 80, state: progress.ProgressState = state) -> None:
            messages.extend([*progress.lines(state, seconds, columns, 24), ""])

        frame(0.4)
        state.update(progress_line(made.actions[0].gpu, "waiting for slurm job 8812 (train), 60 s at most"))
        frame(1.25)
        frame(1.25, 40)
        for n, action in enumerate(made.actions):
            if not isinstance(action, Reset):  # done by the driver
                state.update(describe(action))
            if n % 3 == 2:
                frame(2.0 + n)
        frame(9.0)
        state.failed = True
        frame(9.5)
    text = "\n".join(messages)
    path = GOLDEN / "progress.txt"
    if WRITE:
        path.write_text(text)
    assert text == path.read_text()


def test_remarks_of_others_stay_above(capsys: pytest.CaptureFixture[str]) -> None:
    heard: list[str] = []
    with streams.redirected(heard.append):
        streams.note("note: one")
    streams.note("note: two")
    assert heard == ["note: one"]
    assert capsys.readouterr().err == "note: two\n"
