"""A change is killed around each of its steps and finished by ``--continue`` or by the same command."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from .applying import WORDS, Host, dynamic, ended, idle, running, static
from .bed import Bed, Ran, until

TESTS = str(Path(__file__).parents[2])
LAYOUTS = (
    (("--gpu", "0-1", "--mig", "3g.20gb*2"), "gpu:a100_3g.20gb:4", "a100_3g.20gb"),
    (("--gpu", "0-1", "--mig", "1g.5gb*7"), "gpu:a100_1g.5gb:14", "a100_1g.5gb"),
)
DYNAMIC = ("drain", "wait", "stop", "gpus", "files", "forget", "start", "verify")
STATIC = ("gpus", "files", "tell", "verify", "resume")


def killed(host: Host, step: str, when: str, *words: str) -> Ran:
    """Run a ``slurm apply`` that dies around a step."""
    program = [sys.executable, "-m", "system.slurm.killed", step, when, "slurm", "apply", *host.how, *words]
    return host.bed.run(
        *program, env=host.env | {"PYTHONPATH": os.pathsep.join(filter(None, (TESTS, os.environ.get("PYTHONPATH"))))}
    )


def walk(host: Host, when: str, route: tuple[str, ...]) -> None:
    """Kill a change at each step in turn, with another target layout each time."""
    for number, step in enumerate(route):
        words, gres, kind = LAYOUTS[number % 2]
        dead = killed(host, step, when, *words)
        assert dead.code in (-signal.SIGKILL, 128 + signal.SIGKILL), (step, dead)
        state = host.bed.state("n1")
        assert "INVAL" not in state, (step, state)
        # Every second one is finished by the same command: the user need not know about the kill.
        outcome = host.applied("--continue") if number % 2 else host.applied(*words)
        assert outcome["status"] in ("done", "nothing"), (step, outcome)
        assert host.gres() == gres, step
        until(lambda: idle(host.bed, "n1"), host.log()[-500:])
        ended(host.bed, host.bed.submit("true", f"--gres=gpu:{kind}:1").out)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_dynamic_node_comes_through_a_kill_at_every_step(bed: Bed, when: str) -> None:
    host = dynamic(bed)
    host.applied(*LAYOUTS[1][0], "--node-conf", WORDS)
    until(lambda: idle(bed, "n1"), lambda: bed.state("n1"))
    elsewhere = bed.submit("sleep 600", "-w", "n2").out
    running(bed, elsewhere)
    walk(host, when, (*DYNAMIC, "resume"))
    assert bed.job(elsewhere, "JobState") == "RUNNING"
    assert bed.job(elsewhere, "Restarts") == "0"


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_static_node_comes_through_a_kill_at_every_step(bed: Bed, when: str) -> None:
    host = static(bed)
    host.applied(*LAYOUTS[1][0])
    elsewhere = bed.submit("sleep 600", "-w", "n2").out
    running(bed, elsewhere)
    walk(host, when, STATIC)
    assert bed.job(elsewhere, "JobState") == "RUNNING"
    assert bed.job(elsewhere, "Restarts") == "0"


def test_a_change_that_was_cut_off_can_be_undone(bed: Bed) -> None:
    host = dynamic(bed)
    host.applied(*LAYOUTS[1][0], "--node-conf", WORDS)
    killed(host, "forget", "after", *LAYOUTS[0][0])
    assert host.counts() == {"3g.20gb": 4}
    back = host.apply("--undo")
    assert back.code == 0, back
    assert host.counts() == {"1g.5gb": 14}
    assert host.gres() == "gpu:a100_1g.5gb:14"
    assert "DRAIN" in bed.state("n1")
    assert "Reason=aliquot: " in bed.ok("scontrol", "-o", "show", "node", "n1")
    host.applied(*LAYOUTS[0][0])
    until(lambda: idle(bed, "n1"), lambda: bed.state("n1"))


@pytest.mark.parametrize("step", ["stop", "gpus", "files"])
def test_what_a_power_loss_cut_off_is_finished_at_boot(bed: Bed, step: str) -> None:
    # The order of the units: the instances first, then the interrupted change, once slurmctld answers.
    host = dynamic(bed)
    host.applied(*LAYOUTS[1][0], "--node-conf", WORDS)
    killed(host, step, "after", *LAYOUTS[0][0])
    host.ok("sim", "reboot")
    host.ok("restore", "--boot", "--wait", "0")
    assert "DRAIN" in bed.state("n1")
    bed.ok("scontrol", "shutdown", "slurmctld")
    unavailable = host.run("slurm", "apply", "--boot", timeout=90)
    assert unavailable.code == 20, unavailable
    assert "n1: finishing an interrupted change" in unavailable.err
    bed.ok("sh", "-c", "slurmctld >/dev/null 2>&1")
    until(lambda: "UP" in bed.run("scontrol", "ping").out, "slurmctld does not answer")
    done = host.run("slurm", "apply", "--boot", timeout=90)
    assert done.code == 0, done
    until(lambda: idle(bed, "n1"), lambda: bed.state("n1"))
    assert host.gres() == LAYOUTS[0][1]
    ended(bed, bed.submit("true", f"--gres=gpu:{LAYOUTS[0][2]}:1").out)
    again = host.run("slurm", "apply", "--boot")
    assert (again.code, again.out) == (0, "no change was interrupted on this host\n")


def test_at_boot_nothing_is_typed_beside_it(bed: Bed) -> None:
    refused = dynamic(bed).run("slurm", "apply", "--boot", "--undo")
    assert refused.code == 2
    assert "--boot takes no other options" in refused.err


def test_nothing_under_way_is_a_clear_answer(bed: Bed) -> None:
    host = dynamic(bed)
    for word in ("--continue", "--undo"):
        done = host.apply(word)
        assert done.code == 20
        assert "no change of this node is in progress" in done.err
