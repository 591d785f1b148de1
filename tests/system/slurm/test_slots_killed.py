"""A change of idle slots is killed around each of its steps, or a daemon of Slurm is; running jobs notice nothing."""

from __future__ import annotations

import os
import signal

import pytest

from .applying import ended
from .bed import Bed, until
from .slotted import SlotHost, adopted, openable, probe, runs
from .test_apply_killed import killed

STEPS = ("gate", "gpus", "files", "tell", "verify", "release")
LAYOUTS = (("3g.20gb*2", {7: "3g.20gb", 11: "3g.20gb"}), ("7g.40gb", {7: "7g.40gb"}))
SAVED_S = "6"
"""Seconds after which slurmctld has saved that a job runs. Killed before, it starts the job again by itself."""
ABOUT = ("src/aliquot/slurm/node", "tests/system/slurm/test_slots_killed.py")


def busy(bed: Bed) -> tuple[SlotHost, str]:
    """Return a slot board with a job on GPU 0 that shows what it can open once a file is written."""
    host = adopted(bed, constrain=True)
    bed.ok("mkfifo", f"{bed.folder}/go")
    job = runs(bed, "7g.40gb", script=f"read x < {bed.folder}/go; {probe(bed)}; srun --overlap {probe(bed)}")
    until(lambda: host.used() == {0}, "the job has no slot")
    return host, job


def unharmed(host: SlotHost, job: str) -> None:
    """Assert that the job of ``busy`` opens exactly its own devices, and was never started again."""
    bed = host.bed
    bed.ok("sh", "-c", f"echo > {bed.folder}/go")
    ended(bed, job)
    looks = (bed.folder / "out" / job).read_text().splitlines()
    assert [openable(look) for look in looks] == [host.files(0)] * 2
    assert bed.job(job, "Restarts") == "0"


def settled(host: SlotHost, layout: dict[int, str]) -> None:
    """Assert that GPUs, files and Slurm agree, and that jobs can start."""
    bed = host.bed
    assert host.types() == {0: "7g.40gb"} | layout
    shown = {gres for gres in host.gres().split(",") if ":pad:" not in gres}
    kinds = list(host.types().values())
    assert shown == {f"gpu:a100_{kind}:{kinds.count(kind)}" for kind in kinds}
    assert bed.ok("scontrol", "show", "reservations").startswith("No reservations")
    state = bed.state("n1")
    assert not any(word in state for word in ("DRAIN", "DOWN", "INVAL")), state
    kind = next(iter(layout.values()))
    fresh = bed.submit(probe(bed), "-w", "n1", f"--gres=gpu:a100_{kind}:1").out
    ended(bed, fresh)
    opened = openable((bed.folder / "out" / fresh).read_text())
    assert opened in [host.files(slot) for slot in layout]


@pytest.mark.long(name="slurm slots: killed around each step", about=ABOUT)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_change_that_is_killed_around_each_step_is_finished(bed: Bed, when: str) -> None:
    host, job = busy(bed)
    for number, step in enumerate(STEPS):
        request, layout = LAYOUTS[number % 2]
        words = ("--slots", "--gpu", "1", "--mig", request)
        dead = killed(host, step, when, *words)
        assert dead.code in (-signal.SIGKILL, 128 + signal.SIGKILL), (step, dead)
        assert bed.job(job, "JobState") == "RUNNING", step
        outcome = host.applied("--continue") if number % 2 else host.slots(*words[1:])
        assert outcome["status"] in ("done", "nothing"), (step, outcome)
        settled(host, layout)
    unharmed(host, job)


@pytest.mark.long(name="slurm slots: killed and undone", about=ABOUT)
@pytest.mark.parametrize("step", ["gate", "gpus", "files", "tell"])
def test_a_change_that_is_killed_can_be_undone(bed: Bed, step: str) -> None:
    host, job = busy(bed)
    killed(host, step, "after", "--slots", "--gpu", "1", "--mig", "3g.20gb*2")
    undone = host.apply("--undo")
    assert undone.code == 0, undone
    settled(host, LAYOUTS[1][1])
    unharmed(host, job)


def test_no_job_starts_while_a_killed_change_waits_to_be_finished(bed: Bed) -> None:
    host, job = busy(bed)
    killed(host, "gpus", "after", "--slots", "--gpu", "1", "--mig", "3g.20gb*2")
    # Slurm still counts the instance that is gone.
    waiting = bed.submit("true", "-w", "n1", "--gres=gpu:a100_7g.40gb:1").out
    bed.ok("sleep", "6")
    assert bed.job(waiting, "JobState") == "PENDING"
    assert "aliquot-n1" in bed.ok("scontrol", "show", "reservations")
    bed.ok("scancel", waiting)
    host.applied("--continue")
    settled(host, LAYOUTS[0][1])
    unharmed(host, job)


@pytest.mark.parametrize("step", ["gpus", "files", "tell"])
def test_a_signal_leads_back_beside_the_job(bed: Bed, step: str) -> None:
    host, job = busy(bed)
    stopped = killed(host, step, "stopped", "--slots", "--gpu", "1", "--mig", "3g.20gb*2")
    assert stopped.code == 128 + signal.SIGTERM, stopped
    settled(host, LAYOUTS[1][1])
    unharmed(host, job)


@pytest.mark.long(name="slurm slots: daemons killed", about=ABOUT)
@pytest.mark.parametrize("daemon", ["slurmd", "slurmctld"])
@pytest.mark.parametrize("step", ["gate", "files", "tell"])
def test_a_daemon_that_is_killed_during_the_change_harms_no_job(bed: Bed, daemon: str, step: str) -> None:
    host, job = busy(bed)
    bed.ok("sleep", SAVED_S)
    killed(host, step, "after", "--slots", "--gpu", "1", "--mig", "3g.20gb*2")
    kill(host, daemon)
    done = host.apply("--continue", timeout=150)
    assert done.code == 0, done
    settled(host, LAYOUTS[0][1])
    unharmed(host, job)


def kill(host: SlotHost, daemon: str) -> None:
    """Kill a daemon and start it again, as a unit does."""
    bed = host.bed
    pid = bed.folder / "run" / ("n1.pid" if daemon == "slurmd" else "slurmctld.pid")
    os.kill(int(pid.read_text()), signal.SIGKILL)
    pid.unlink(missing_ok=True)
    bed.ok("sh", "-c", host.start if daemon == "slurmd" else "slurmctld >/dev/null 2>&1")
    until(lambda: "UP" in bed.run("scontrol", "ping").out, "slurmctld does not answer")
