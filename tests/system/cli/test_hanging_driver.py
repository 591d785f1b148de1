"""A driver call that does not return: every command reports what it waits for, and ends on a signal.

The commands run as separate processes and call the driver through its library. The signal arrives while their main
thread waits inside C.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import msgspec
import pytest

from aliquot.errors import AliquotError
from aliquot.foundation.driver_calls import VARIABLE
from aliquot.foundation.paths import simulated_nodes
from aliquot.sim import lifecycle as control
from support import forkserver
from support.processes import until

from .conftest import SOURCE, Run, Sim

HANGS_S = 0.8
Begin = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def begin(a100: Sim, monkeypatch: pytest.MonkeyPatch) -> Iterator[Begin]:
    """Return a function that starts a command. A driver call counts as hanging after HANGS_S."""
    try:
        control.library(a100.node.state_dir, a100.name)
    except AliquotError as error:
        pytest.skip(error.brief)
    made: list[subprocess.Popen[str]] = []

    def start(*words: str, backend: str = "shim", ignoring: signal.Signals | None = None) -> subprocess.Popen[str]:
        env = {**os.environ, "PYTHONPATH": SOURCE, VARIABLE: str(HANGS_S), "ALIQUOT_BACKEND": backend}
        command = [sys.executable, "-m", "aliquot", *words]
        pipe = subprocess.PIPE
        if ignoring is None:
            made.append(forkserver.Popen(command, env=env, text=True, stdout=pipe, stderr=pipe))
        else:
            command = ["sh", "-c", f'trap "" {ignoring.name.removeprefix("SIG")}; exec "$0" "$@"', *command]
            made.append(subprocess.Popen(command, env=env, text=True, stdout=pipe, stderr=pipe))
        return made[-1]

    yield start
    a100.node.inject_fault("none")
    for process in made:
        process.kill()
        process.communicate()


def line(process: subprocess.Popen[str], start: str) -> str:
    """Read stderr up to a line that starts with ``start``."""
    assert process.stderr is not None
    for found in process.stderr:
        if found.startswith(start):
            return found
    raise AssertionError(f"it ended with {process.wait()} and without a line {start!r}")


def end(process: subprocess.Popen[str], number: signal.Signals, within_s: float = 5.0) -> tuple[int, str]:
    """Send a signal. Returns the exit code as a shell shows it, and the rest of stderr."""
    began = time.monotonic()
    process.send_signal(number)
    _, err = process.communicate(timeout=20)
    assert time.monotonic() - began < within_s
    assert "Traceback" not in err
    return process.returncode if process.returncode >= 0 else 128 - process.returncode, err


@pytest.mark.parametrize(
    ("backend", "words"),
    [
        ("shim", ("show",)),
        ("direct", ("show",)),
        ("shim", ("plan", "--gpu", "0", "--mig", "7g.40gb")),
        ("shim", ("verify", "--gpu", "0", "--mig", "7g.40gb")),
        ("shim", ("metrics",)),
        ("direct", ("apply", "--gpu", "0", "--mig", "7g.40gb")),
    ],
)
def test_a_command_that_reads_says_what_it_waits_for_and_ends(
    a100: Sim, begin: Begin, backend: str, words: tuple[str, ...]
) -> None:
    a100.node.inject_fault("hang")
    process = begin(*words, backend=backend)
    answer = line(process, "waiting:")
    assert "the driver has not returned from opening NVML for" in answer
    assert "press Ctrl-C to end the command" in answer
    code, err = end(process, signal.SIGINT)
    assert code == 130
    assert "interrupted" in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_needs_no_notice(a100: Sim, begin: Begin, number: signal.Signals) -> None:
    # A command that only reads has nothing to lose, so it also ends before the call counts as hanging.
    a100.node.inject_fault("hang", call="DeviceGetMigMode")
    process = begin("show")
    _until_called(a100, "Init")
    time.sleep(0.2)
    assert end(process, number)[0] == 128 + number


def _until_called(sim: Sim, call: str) -> None:
    until(lambda: any(c["call"] == call for c in sim.node.calls()), f"{call} is made", 20, pause_s=0.02)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_change_is_left_once_its_call_hangs_and_the_next_one_finishes_it(
    a100: Sim, begin: Begin, number: signal.Signals
) -> None:
    words = ("apply", "--gpu", "0", "--mig", "7g.40gb")
    a100.node.inject_fault("hang", call="DeviceCreateGpuInstanceWithPlacement")
    process = begin(*words)
    answer = line(process, "waiting:")
    assert "creating a GPU instance" in answer
    code, err = end(process, number)
    assert code == 128 + number
    assert "the journal has recorded the change" in err
    a100.node.inject_fault("none")
    # The call returns now. If that is just after the next command has made its plan, that one refuses it.
    codes: list[int] = []
    while not codes or codes[-1] != 0:
        again = begin(*words)
        _, err = again.communicate(timeout=30)
        codes.append(again.returncode)
        assert again.returncode == 0 or ("blocked[MOVED]" in err and len(codes) == 1), (codes, err)
    assert begin("verify", *words[1:]).wait(30) == 0


def test_a_change_goes_back_where_its_call_returns(a100: Sim, begin: Begin) -> None:
    # The signal arrives during a call that is only slow: the command waits for the call, then rolls back.
    a100.node.set_mode(0, True)
    a100.node.inject_fault("slow", call="DeviceCreateGpuInstanceWithPlacement", seconds=HANGS_S / 2, calls=1)
    process = begin("apply", "--gpu", "0", "--mig", "7g.40gb")
    _until_called(a100, "DeviceGetGpuInstancePossiblePlacements")
    time.sleep(0.4)
    code, err = end(process, signal.SIGTERM, within_s=10)
    assert code == 143
    assert "journal" not in err
    assert a100.node.show()["gpus"][0]["instances"] == []


def test_an_ignored_signal_stays_ignored(a100: Sim, begin: Begin) -> None:
    a100.node.inject_fault("hang", call="DeviceGetMigMode")
    process = begin("show", ignoring=signal.SIGINT)
    assert "Ctrl-C" not in line(process, "waiting:")
    process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(1.5)
    a100.node.inject_fault("none")
    out, _ = process.communicate(timeout=20)
    assert process.returncode == 0
    assert "A100" in out


@pytest.mark.parametrize("backend", ["shim", "direct"])
def test_a_server_that_is_stopped(begin: Begin, a100: Sim, backend: str) -> None:
    # As in the field: not a single call hangs, but the server that answers all of them.
    lines = control.connect(simulated_nodes(a100.node.state_dir), "control.sock")
    server = msgspec.json.decode(lines.request('{"do":"ping"}'))["pid"]
    lines.close()
    os.kill(server, signal.SIGSTOP)
    try:
        process = begin("show", backend=backend)
        assert "has not returned from" in line(process, "waiting:")
        assert end(process, signal.SIGINT)[0] == 130
    finally:
        os.kill(server, signal.SIGCONT)


def test_a_bound_that_is_not_a_number(a100: Sim, program: Run) -> None:
    assert program("show", **{VARIABLE: "soon"}).code == 2
