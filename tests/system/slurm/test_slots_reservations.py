"""A change of idle slots beside a site's own reservations, on real clusters of both releases."""

from __future__ import annotations

from .applying import running
from .bed import Bed, until
from .slotted import adopted, runs

FLAGS = ("", "overlap", "flex", "ignore_jobs", "magnetic", "part_nodes", "daily", "maint")
"""Flags of a site's reservations, each on a node of its own."""
CYCLE_S = "7"
"""Seconds in which Slurm tries every pending job again (``sched_interval`` and ``bf_interval`` of the bed)."""


def reserve(bed: Bed, name: str, node: str, flags: str, start: str = "now") -> None:
    words = [f"nodes={node}", f"starttime={start}", "duration=60", "users=root"]
    words = [*(words if flags != "part_nodes" else ("nodes=ALL", f"partition={node}", *words[1:]))]
    bed.ok("scontrol", "create", "reservation", f"reservationname={name}", *words, *([f"flags={flags}"] * bool(flags)))


def test_only_jobs_of_a_maintenance_start_behind_the_gate(bed: Bed) -> None:
    nodes = {f"n{number}": flags for number, flags in enumerate(FLAGS)}
    lines = [bed.node(name, f"CPUs=8 RealMemory=1000 Feature={name}") for name in nodes]
    lines += [f"PartitionName={name} Nodes={name} Default={'YES' * (name == 'n0') or 'NO'}" for name in nodes]
    bed.conf("\n".join(lines), more="SlurmdParameters=config_overrides")
    bed.controller()
    jobs: dict[str, list[str]] = {}
    for name, flags in nodes.items():
        bed.slurmd(name)
        reserve(bed, f"site-{name}", name, flags)
        words = ("-p", name, f"--reservation=site-{name}", "-C", name)
        jobs[name] = [bed.submit("sleep 600", "--hold", *words).out]
        gate = ("nodes=" + name, "starttime=now", "duration=5", "flags=maint,ignore_jobs", "users=root")
        bed.ok("scontrol", "create", "reservation", f"reservationname=gate-{name}", *gate)
        bed.ok("scontrol", "update", f"reservationname=gate-{name}", "duration=infinite")
        bed.ok("scontrol", "release", *jobs[name])
        jobs[name].append(bed.submit("sleep 600", *words).out)
    (maintenance,) = (name for name, flags in nodes.items() if flags == "maint")
    for job in jobs[maintenance]:
        running(bed, job)
    bed.ok("sleep", CYCLE_S)
    started = {nodes[name] for name in nodes if any(bed.job(job, "JobState") != "PENDING" for job in jobs[name])}
    assert started == {"maint"}
    for name in nodes:
        bed.ok("scontrol", "delete", f"reservationname=gate-{name}")
    for job in [job for each in jobs.values() for job in each]:
        running(bed, job)


def test_a_change_beside_a_reservation_keeps_its_jobs_in_the_queue(bed: Bed) -> None:
    # A job of a reservation that names a node behind the gate counts as one that can never run (BadConstraints) on
    # 22.05, until slurmctld tries it again within half a minute.
    host = adopted(bed)
    reserve(bed, "class", "n1", "")
    reserve(bed, "next-week", "n1", "maint", "now+7days")
    job = runs(bed, "7g.40gb", "-t10", "--reservation=class")
    waits = bed.submit("true", "-w", "n1", "-n16", "-t10", "--reservation=class", "--gres=gpu:a100_7g.40gb:1").out
    until(lambda: host.used() == {0}, "the job has no slot")
    assert host.slots("--gpu", "1", "--mig", "3g.20gb*2")["status"] == "done"
    assert (bed.job(job, "JobState"), bed.job(job, "Restarts")) == ("RUNNING", "0")
    assert bed.job(waits, "JobState") == "PENDING"
    bed.ok("scancel", job)
    until(lambda: bed.job(waits, "JobState") == "COMPLETED", lambda: bed.job(waits, "Reason"), 70)
    shown = bed.ok("scontrol", "show", "reservations")
    assert [name in shown for name in ("class", "next-week", "aliquot-n1")] == [True, True, False]
