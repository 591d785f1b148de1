"""Kinds of jobs that Slurm schedules in their own ways, across changes of idle slots, on both releases."""

from __future__ import annotations

import pytest

from .accounting import Accounting, missing
from .applying import ended, running
from .bed import Bed, until
from .slotted import SlotHost, adopted, looks, probe, runs

HALF, WHOLE = "gpu:a100_3g.20gb:1", "gpu:a100_7g.40gb:1"
LAST = "3g.20gb@0,1g.5gb@4,1g.5gb@5"
"""A layout of GPU 1 that keeps its first half."""


def looking(bed: Bed, name: str) -> str:
    """Return a script that shows what it can open at once, and again once it may end."""
    go = f"{bed.folder}/{name}"
    bed.ok("mkfifo", go)
    return f"{probe(bed)}; read x < {go}; {probe(bed)}; srun --overlap {probe(bed)}"


def ends(host: SlotHost, job: str, name: str, slot: int) -> None:
    """End a job of ``looking``, which must have opened exactly the devices of a slot until then."""
    host.bed.ok("sh", "-c", f"echo > {host.bed.folder}/{name}")
    ended(host.bed, job)
    assert looks(host.bed, job) == [host.files(slot)] * 3
    assert host.bed.job(job, "Restarts") == "0"


def test_a_part_of_a_heterogeneous_job_keeps_its_devices(bed: Bed) -> None:
    # Slurm gives each part nodes of its own.
    host = adopted(bed, "--gpu", "0-1", "--mig", "3g.20gb*2", constrain=True)
    go, out = bed.folder / "go", bed.folder / "out" / "het"
    bed.ok("mkfifo", str(go))
    step = f"srun --het-group=0 {probe(bed)}"
    (bed.folder / "script").write_text(f"#!/bin/sh\n{step}\nread x < {go}\n{step}\nsrun --het-group=0,1 true\n")
    parts = ("-w", "n1", f"--gres={HALF}", ":", "-w", "n2")
    done = bed.run("sbatch", "--parsable", f"--output={out}", *parts, f"{bed.folder}/script")
    assert done.code == 0, done
    job = done.out.strip()
    until(lambda: out.exists() and len(looks(bed, "het")) == 1, lambda: bed.run("squeue").out)
    (slot,) = host.used()
    host.slots("--gpu", str(1 - slot // 7), "--mig", "1g.5gb*7")
    assert host.used() == {slot}
    go.write_text("\n")
    # After a restart of slurmctld (22.05), srun tries again after a minute if a node has not registered yet.
    until(lambda: bed.job(job, "JobState") == "COMPLETED", lambda: bed.run("squeue", "-s").out, 100)
    assert looks(bed, "het") == [host.files(slot)] * 2
    assert bed.job(job, "Restarts") == "0"


def test_a_job_that_preempts_another_gets_its_slot_and_no_other(bed: Bed) -> None:
    lines = ("all Nodes=ALL Default=YES PriorityTier=1", "urgent Nodes=ALL PriorityTier=9")
    more = "PreemptType=preempt/partition_prio\nPreemptMode=REQUEUE\n" + "\n".join(f"PartitionName={x}" for x in lines)
    host = adopted(bed, constrain=True, more=more)
    low = runs(bed, "7g.40gb", "--requeue")
    stays = runs(bed, "7g.40gb", "-p", "urgent", script=looking(bed, "stays"))
    until(lambda: host.used() == {0, 7}, "the jobs have no slots")
    until(lambda: len(looks(bed, stays)) == 1, "the job shows nothing")
    (slot,) = (slot for slot in (0, 7) if [host.files(slot)] == looks(bed, stays))
    refused = host.tried("--gpu", str(1 - slot // 7), "--mig", "3g.20gb*2")
    assert (refused.code, f"job {low} (" in refused.err) == (20, True), refused
    high = bed.submit(looking(bed, "high"), "-w", "n1", "-p", "urgent", f"--gres={WHOLE}").out
    running(bed, high)
    assert bed.job(low, "JobState") in ("PENDING", "COMPLETING")
    until(lambda: len(looks(bed, high)) == 1, "the job shows nothing")
    bed.ok("scancel", low)
    ends(host, high, "high", 7 - slot)
    host.slots("--gpu", str(1 - slot // 7), "--mig", "3g.20gb*2")
    ends(host, stays, "stays", slot)


@pytest.mark.long(about=["src/aliquot/slurm/node/slot_", "tests/system/slurm/test_slots_scheduling"])
def test_limits_of_a_qos_hold_across_a_change(bed: Bed) -> None:
    if missing(bed.release):
        pytest.skip(missing(bed.release))
    accounting = Accounting(bed)
    tres = ("gres/gpu", "gres/gpu:a100_3g.20gb", "gres/gpu:a100_7g.40gb")
    more = accounting.lines(*tres) + "AccountingStorageEnforce=limits,qos\n"
    host = adopted(bed, "--gpu", "0-1", "--mig", "3g.20gb*2", constrain=True, more=more)
    limit = "MaxTRESPerUser=gres/gpu:a100_3g.20gb=1"
    for words in (("account", "science"), ("user", "root", "account=science"), ("qos", "small", limit)):
        bed.ok("sacctmgr", "-i", "add", *words)
    bed.ok("sacctmgr", "-i", "modify", "user", "root", "set", "qos+=small")
    words = ("--account=science", "--qos=small")
    first = runs(bed, "3g.20gb", *words, script=looking(bed, "first"))
    until(lambda: len(looks(bed, first)) == 1, "the job shows nothing")
    (slot,) = host.used()
    second = bed.submit(looking(bed, "second"), "-w", "n1", f"--gres={HALF}", *words).out
    until(lambda: "QOSMaxGRESPerUser" in bed.job(second, "Reason"), lambda: bed.job(second, "Reason"))
    host.slots("--gpu", str(1 - slot // 7), "--mig", LAST)
    assert "QOSMaxGRESPerUser" in bed.job(second, "Reason")
    ends(host, first, "first", slot)
    running(bed, second)
    until(lambda: len(looks(bed, second)) == 1, "the job shows nothing")
    (slot,) = host.used()
    ends(host, second, "second", slot)
