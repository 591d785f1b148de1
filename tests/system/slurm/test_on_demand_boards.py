"""Layouts on demand on a slot board of a real slurmctld: idle slots follow the queue while jobs run beside them."""

from __future__ import annotations

from .bed import Bed, until
from .boarded import BoardCluster

ARRAY = ("--array=1-16",)


def test_an_array_of_sixteen_runs_after_one_change(bed: Bed) -> None:
    cluster = BoardCluster(bed, gpus=8)
    cluster.controller()
    array = cluster.submit("3g.20gb:1", *ARRAY)
    cluster.runs(array, 16)
    assert cluster.changes() == 1, cluster.log()


def test_beside_a_job_the_other_gpus_serve_the_array(bed: Bed) -> None:
    cluster = BoardCluster(bed, gpus=8)
    beside = cluster.submit("7g.40gb:1")
    cluster.runs(beside)
    cluster.controller()
    array = cluster.submit("3g.20gb:1", *ARRAY)
    cluster.runs(array, 14)
    assert cluster.changes() == 1, cluster.log()
    assert bed.job(beside, "JobState") == "RUNNING"
    assert bed.job(beside, "Restarts") == "0"
    until(lambda: f"job {array}: waits" in cluster.log(), cluster.reported)
    assert cluster.changes() == 1, "two tasks wait rightly"


def test_a_burst_beside_a_job_in_half_of_a_gpu_shares_what_is_left(bed: Bed) -> None:
    cluster = BoardCluster(bed, gpus=2)
    cluster.controller()
    half = cluster.submit("3g.20gb:1")
    cluster.runs(half)
    before = cluster.changes()
    devices = cluster.host.used()
    wanted = {"1g.5gb:1": 2, "2g.10gb:1": 1, "3g.20gb:1": 1}
    jobs = [cluster.submit(kind, f"--array=1-{tasks}") for kind, tasks in wanted.items()]
    for job, tasks in zip(jobs, wanted.values(), strict=True):
        cluster.runs(job, tasks)
    assert cluster.changes() - before <= 2, cluster.log()
    assert devices <= cluster.host.used()
    assert bed.job(half, "Restarts") == "0"


def test_the_highest_priority_is_served_first_although_it_came_last(bed: Bed) -> None:
    cluster = BoardCluster(bed, gpus=2, more="PriorityType=priority/basic")
    low = cluster.submit("1g.5gb:1", "--array=1-14", "--priority=10")
    high = cluster.submit("3g.20gb:4", "--priority=999999")
    shown = cluster.demand()
    assert "GPU 0000:01:00.0: 7g.40gb -> 3g.20gb:2" in shown, shown
    assert f"  for      job {high}\n" in shown, shown
    cluster.controller()
    cluster.runs(high)
    assert cluster.running(low) == 0
    bed.ok("scancel", high)
    cluster.runs(low, 14)
    assert cluster.changes() == 2, cluster.log()


def test_a_job_for_a_whole_gpu_waits_through_changes_of_its_halves(bed: Bed) -> None:
    cluster = BoardCluster(bed, gpus=1)
    cluster.controller()
    half = cluster.submit("3g.20gb:1")
    cluster.runs(half)
    whole = cluster.submit("7g.40gb:1")
    small = cluster.submit("1g.5gb:1", "--array=1-3")
    cluster.runs(small, 3)
    assert bed.job(whole, "JobState") == "PENDING", "no node has its type now"
    bed.ok("scancel", half, small)
    cluster.runs(whole)
    assert cluster.changes() == 3, cluster.log()
