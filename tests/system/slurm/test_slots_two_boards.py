"""A change of a slot board leaves the jobs of other boards and nodes alone, on both releases."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from .applying import ended, idle, running
from .bed import Bed, until
from .release import OLD
from .slotted import SHAPE, SlotHost, adopted, openable, probe, slot_host


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
def test_a_restart_that_forgets_the_nodes_is_reported(bed: Bed) -> None:
    host = adopted(bed)
    outcome = host.apply("--slots", "--gpu", "1", "--mig", "3g.20gb*2")
    assert outcome.code == 0, outcome
    assert "note: slurmctld forgot the state of n2 when it restarted" in outcome.err
