"""``--wait-for-lock``: a command that takes the node's lock waits for its holder and names it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from aliquot.foundation.paths import directories

from .conftest import SOURCE, Run, Sim

_HOLDER = """
import sys, time
from aliquot.foundation.lock import FileLock
with FileLock(sys.argv[1]).hold():
    print("held", flush=True)
    {then}
"""
Holder = Callable[..., int]


@pytest.fixture
def holder() -> Iterator[Holder]:
    """Return a function that holds a node's lock in another process for some seconds and returns its pid."""
    with ExitStack() as stack:

        def hold(node: str, then: str = "time.sleep(60)") -> int:
            command = [sys.executable, "-c", _HOLDER.format(then=then), os.path.join(directories(node)[0], "lock")]
            environment = {**os.environ, "PYTHONPATH": SOURCE}
            process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, env=environment))
            stack.callback(process.kill)
            assert process.stdout is not None
            assert process.stdout.readline() == b"held\n"
            return process.pid

        yield hold


APPLY = ("apply", "--gpu", "0", "--mig", "3g.20gb")


def test_a_held_lock_is_refused_at_once(a100: Sim, run: Run, holder: Holder) -> None:
    pid = holder(a100.name)
    refused = run(*APPLY)
    assert (refused.code, f"process {pid} (" in refused.err, "waiting" in refused.err) == (20, True, False)


def test_apply_waits_for_the_lock_and_names_its_holder(a100: Sim, run: Run, holder: Holder) -> None:
    pid = holder(a100.name, "time.sleep(0.5)")
    done = run(*APPLY, "--wait-for-lock", "30")
    assert done.code == 0, done.err
    assert f"waiting, 30 s at most, for process {pid} (" in done.err
    assert done.err.count("waiting") == 1


def test_it_plans_for_the_gpus_as_the_holder_left_them(a100: Sim, run: Run, holder: Holder) -> None:
    a100.node.set_mode(0, True)
    change = "from aliquot.sim.client import SimClient; import os; time.sleep(0.5); "
    change += "SimClient(os.environ['ALIQUOT_STATE_DIR'], 'one').create(0, '3g.20gb', 4)"
    holder(a100.name, change)
    done = run(*APPLY, "--wait-for-lock", "30")
    assert (done.code, "nothing to do" in done.out) == (0, True)


def test_its_patience_ends(a100: Sim, run: Run, holder: Holder) -> None:
    pid = holder(a100.name)
    refused = run(*APPLY, "--wait-for-lock", "0.3", "-o", "json")
    assert (refused.code, "LOCKED" in refused.err + refused.out, str(pid) in refused.err) == (20, True, True)
    assert a100.writes() == []


@pytest.mark.parametrize(
    "words",
    [
        ["apply", "--gpu", "0", "--mig", "empty"],
        ["restore", "checkpoint.json"],
        ["vgpu", "disable", "0"],
        ["passthrough", "enable", "0"],
        ["slurm", "apply", "--gpu", "0", "--mig", "empty"],
        ["libvirt", "attach", "vm", "0"],
    ],
)
def test_every_verb_that_takes_the_lock_waits(a100: Sim, run: Run, holder: Holder, words: list[str]) -> None:
    assert run("checkpoint", "--out", "checkpoint.json").code == 0
    holder(a100.name)
    assert "waiting, 0 s at most" in run(*words, "--wait-for-lock", "0.2").err


@pytest.mark.parametrize("seconds", ["-1", "inf", "nan", "x"])
def test_seconds_are_a_number(a100: Sim, run: Run, seconds: str) -> None:
    assert run(*APPLY, f"--wait-for-lock={seconds}").code == 2
    assert a100.writes() == []
