"""``-q``, ``-v`` and ``--color`` on every verb: messages that a command prints besides its result."""

from __future__ import annotations

import pytest

from aliquot.cli.completion import leaves
from aliquot.cli.framework import color, progress, streams, verbosity
from aliquot.cli.framework.command_model import COLOR, COMMON
from aliquot.cli.framework.error_output import COMPATIBLE
from aliquot.foundation import driver_calls

from .conftest import Run, Sim

PLAN = ("plan", "--gpu", "0", "--mig", "3g.20gb")


def test_quiet_prints_only_results(a100: Sim, run: Run) -> None:
    loud, quiet = run(*PLAN), run(*PLAN, "-q")
    assert "next     aliquot apply" in loud.err
    assert (quiet.code, quiet.out, quiet.err) == (loud.code, loud.out, "")
    assert run("-q", *PLAN).err == ""
    assert run("apply", *PLAN[1:], "--quiet").err == ""
    assert "next" in run(*PLAN[:3], "--mig", "7g.40gb").err, "quiet ends with its command"


def test_quiet_prints_errors(a100: Sim, run: Run) -> None:
    for words in ((*PLAN[:4], "9g.80gb"), ("show", "7"), ("plan", "--bad")):
        assert run(*words, "-q") == run(*words)
    a100.node.set_mode(0, True)
    a100.node.create(0, "1g.5gb", 0)
    a100.node.hold(0, 7)
    refused = run("plan", "--gpu", "0", "--mig", "7g.40gb", "-q")
    assert (refused.code, "python3" in refused.err) == (20, True), "a refusal is not optional output"
    a100.node.release(0, 7)
    a100.node.inject_fault("fail", call="GpuInstanceCreateComputeInstance", code=999, calls=1)
    failed = run("apply", "--gpu", "0", "--mig", "7g.40gb", "-q")
    assert (failed.code, failed.err.startswith("hardware[")) == (40, True), "the verb itself prints it"


def test_verbose_prints_the_time_of_steps_and_calls(a100: Sim, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verbosity, "SLOW_S", 0.0)
    lines = run("apply", *PLAN[1:], "-v").err.splitlines()
    assert [line.split()[1:3] for line in lines if line.startswith("step     create ")] == [["create", "3g.20gb:"]]
    calls = [line for line in lines if line.startswith("driver ")]
    assert calls[-1].split()[1:3] == [str(len(calls) - 1), "calls"]
    assert all(line.endswith(" s") for line in calls)
    assert "driver " not in run("show").err


def test_verbose_prints_the_calls_of_a_command_that_failed(a100: Sim, run: Run) -> None:
    result = run("show", "7", "-v")
    assert result.code == 20
    assert " calls in " in result.err
    assert driver_calls.on_return is None


def test_quiet_and_verbose_exclude_each_other(run: Run) -> None:
    result = run("version", "-q", "-v")
    assert (result.code, result.out) == (2, "")
    assert "-q and -v exclude each other" in result.err


@pytest.mark.parametrize(("mode", "colored"), [("auto", False), ("never", False), ("always", True)])
def test_color_is_as_it_was_chosen(mode: str, colored: bool, a100: Sim, run: Run) -> None:
    a100.node.set_mode(0, True)
    a100.node.create(0, "1g.5gb", 0)
    assert ("\x1b[" in run("show", "--color", mode).out) == colored
    assert color.mode == color.AUTO


def test_never_wins_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert color.wanted()
    monkeypatch.setattr(color, "mode", color.NEVER)
    assert not (color.wanted())
    assert not (color.welcome())


def test_a_quiet_change_has_no_progress_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(streams, "watched", lambda: True)
    assert progress.wanted()
    monkeypatch.setattr(streams, "quiet", True)
    assert not progress.wanted()


def test_every_verb_has_the_common_options() -> None:
    assert COLOR.choices == color.MODES
    for path, command in leaves():
        assert (set(COMMON) <= {*command.accepted}) == (not {*path[:1]} & {*COMPATIBLE}), path
