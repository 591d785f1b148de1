"""A change of a slot board leaves the jobs of other boards and nodes alone, on both releases."""

from __future__ import annotations

import math
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from .applying import ended, idle, restart, running
from .bed import Bed, until
from .release import OLD
from .slotted import SHAPE, SlotHost, adopted, looks, openable, probe, slot_host

STEPS = (
    "while :; do a=$(date +%s%N); srun true 2>/dev/null && echo $(($(date +%s%N) - a)) || echo failed; sleep 0.3; done"
)
LONGEST_S = 3.0
"""A step that meets the restart tries again after a second; one that waits for the node, after a minute."""


def boards(bed: Bed) -> tuple[SlotHost, SlotHost]:
    """Start a cluster with two slot boards, whose daemons have the same files."""
    first = slot_host(bed, constrain=True, nodes=bed.node("n3", f"{SHAPE} Gres=gpu:a100:2"))
    second = SlotHost(bed, "n3", "a100-sxm4-40gb*2")
    for host in (first, second):
        host.slots("--gpu", "0-1", "--mig", "7g.40gb")
    until(lambda: idle(bed, "n1") and idle(bed, "n3"), lambda: bed.run("sinfo", "-N").out)
    return first, second


def busy(host: SlotHost) -> str:
    """Start a job on GPU 0 of a board that shows what it can open, and again once it may end."""
    bed, go = host.bed, f"{host.bed.folder}/go-{host.name}"
    bed.ok("mkfifo", go)
    script = f"{probe(bed)}; read x < {go}; {probe(bed)}; srun --overlap {probe(bed)}"
    job = bed.submit(script, "-w", host.name, "--gres=gpu:a100_7g.40gb:1").out
    running(bed, job)
    until(lambda: host.used() == {0}, "the job has no slot")
    return job


def unharmed(host: SlotHost, job: str) -> None:
    bed = host.bed
    until(lambda: host.used() == {0}, lambda: str(host.used()))
    bed.ok("sh", "-c", f"echo > {bed.folder}/go-{host.name}")
    ended(bed, job)
    looks = [openable(line) for line in (bed.folder / "out" / job).read_text().splitlines()]
    assert looks == [host.files(0)] * 3
    assert bed.job(job, "Restarts") == "0"


def usable(host: SlotHost, layout: dict[int, str], kind: str) -> None:
    """Assert that files and Slurm have a layout, and that a job gets one of its devices."""
    bed = host.bed
    assert host.types() == {0: "7g.40gb"} | layout
    assert not any(word in bed.state(host.name) for word in ("DRAIN", "DOWN", "INVAL")), bed.state(host.name)
    job = bed.submit(probe(bed), "-w", host.name, f"--gres=gpu:a100_{kind}:1").out
    ended(bed, job)
    assert openable((bed.folder / "out" / job).read_text()) in [host.files(slot) for slot in layout]


def durations(bed: Bed, job: str) -> list[float]:
    """Return how long the steps of a job took so far, in seconds. One that failed took for ever."""
    words = (bed.folder / "out" / job).read_text().split()
    return [math.inf if word == "failed" else int(word) / 1e9 for word in words]


def goes_on(bed: Bed, job: str) -> None:
    """Assert that no step of a job failed or waits."""
    before = len(durations(bed, job))
    until(lambda: len(durations(bed, job)) > before + 1, f"a step of job {job} waits")
    assert max(durations(bed, job)) < LONGEST_S


def test_boards_that_change_in_turn_leave_each_others_jobs_alone(bed: Bed) -> None:
    hosts = boards(bed)
    jobs = [busy(host) for host in hosts]
    for host, request in zip(hosts, ("3g.20gb*2", "2g.10gb*3"), strict=True):
        assert host.slots("--gpu", "1", "--mig", request)["status"] == "done"
        # After a restart, slurmctld names the slots of a node once its slurmd has registered.
        until(lambda: [each.used() for each in hosts] == [{0}, {0}], lambda: str([each.used() for each in hosts]))
    usable(hosts[0], {7: "3g.20gb", 11: "3g.20gb"}, "3g.20gb")
    usable(hosts[1], {7: "2g.10gb", 9: "2g.10gb", 11: "2g.10gb"}, "2g.10gb")
    for host, job in zip(hosts, jobs, strict=True):
        unharmed(host, job)


def test_boards_that_change_at_once_leave_each_others_jobs_alone(bed: Bed) -> None:
    hosts = boards(bed)
    jobs = [busy(host) for host in hosts]
    with ThreadPoolExecutor(2) as pool:
        words = ("--gpu", "1", "--mig", "3g.20gb*2")
        outcomes = list(pool.map(lambda host: host.apply("--slots", *words, timeout=150), hosts))
    assert [done.code for done in outcomes] == [0, 0], outcomes
    for host, job in zip(hosts, jobs, strict=True):
        usable(host, {7: "3g.20gb", 11: "3g.20gb"}, "3g.20gb")
        unharmed(host, job)
    assert bed.ok("scontrol", "show", "reservations").startswith("No reservations")


@pytest.mark.parametrize("release", [OLD], ids=["22.05"], indirect=True)
def test_a_restart_that_remembers_the_nodes_harms_no_step_and_no_job_that_starts(bed: Bed) -> None:
    first, second = boards(bed)
    kinds = {"n2": (), "n3": ("--gres=gpu:a100_7g.40gb:1",)}
    steps = {node: bed.submit(STEPS, "-w", node, *words).out for node, words in kinds.items()}
    until(lambda: all((bed.folder / "out" / each).exists() for each in steps.values()), "no step has run")
    words = ("-w", "n3", "--gres=gpu:a100_7g.40gb:1")
    with ThreadPoolExecutor(1) as pool:
        change = pool.submit(first.apply, "--slots", "--gpu", "1", "--mig", "3g.20gb*2")
        jobs = []
        while not change.done():
            jobs.append(bed.submit(probe(bed), *words).out)
            time.sleep(0.5)
    assert change.result().code == 0, change.result()
    assert "forgot" not in change.result().err
    ended(bed, jobs[-1])
    for job in jobs:
        assert looks(bed, job) == [second.files(7)], job
        assert bed.job(job, "Restarts") == "0"
    for job in steps.values():
        goes_on(bed, job)
    assert bed.ok("scontrol", "show", "reservations").startswith("No reservations")


@pytest.mark.parametrize("release", [OLD], ids=["22.05"], indirect=True)
def test_a_restart_that_forgets_the_nodes_is_reported(bed: Bed) -> None:
    host = adopted(bed)
    restart(bed, options="")
    outcome = host.apply("--slots", "--gpu", "1", "--mig", "3g.20gb*2")
    assert outcome.code == 0, outcome
    assert "note: slurmctld forgot the state of n2 when it restarted" in outcome.err
