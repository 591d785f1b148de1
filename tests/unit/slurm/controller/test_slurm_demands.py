"""Demands of pending jobs, and jobs for which no repartition can help."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from aliquot.slurm.client.models import Gres, SlurmJob, SlurmPartition, SlurmReservation
from aliquot.slurm.controller.job_demand import JobQueue, job_queue, per_node

LAYOUTS = {"mig_2x3g": {"3g.20gb": 2}, "mig_7x1g": {"1g.5gb": 7}}
SLICE = Gres("gpu", "a100_1g.5gb", 2)
JOB = SlurmJob(
    5,
    "PENDING",
    reason="Resources",
    partitions=("all",),
    requested=(("node", SLICE),),
    priority=10,
    submitted=7,
    tasks=4,
)


def queue(*jobs: SlurmJob, up: bool = True) -> JobQueue:
    return job_queue(jobs, [SlurmPartition("all", up=up)], LAYOUTS, now=100.0)


@pytest.mark.parametrize(
    ("how", "nodes", "tasks", "count"),
    [("node", 2, 4, 2), ("job", 1, 1, 2), ("job", 2, 4, 1), ("task", 1, 4, 8), ("task", 2, 4, 4), ("socket", 1, 1, 2)],
)
def test_the_four_forms_of_a_request(how: str, nodes: int, tasks: int, count: int) -> None:
    job = replace(JOB, requested=((how, SLICE),), node_count=nodes, tasks=tasks)
    assert per_node(job) == {"a100_1g.5gb": count}
    (want,) = queue(replace(job, node_limit=nodes)).demands
    assert (want.need, want.nodes, want.copies) == ({"a100_1g.5gb": count}, nodes, 1)


def test_what_is_given_by_two_options_is_requested_once() -> None:
    job = replace(JOB, requested=(("job", replace(SLICE, count=4)), ("task", replace(SLICE, count=1))))
    assert per_node(job) == {"a100_1g.5gb": 4}


@pytest.mark.parametrize(
    "reason",
    [
        "Resources",
        "ReqNodeNotAvail",
        "ReqNodeNotAvail,_UnavailableNodes:n1",
        "Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved_for_jobs_in_higher_priority_partitions",
        "None",
        "",
    ],
)
def test_reasons_that_slices_are_an_answer_to(reason: str) -> None:
    (want,) = queue(replace(JOB, reason=reason)).demands
    assert not want.follows


@pytest.mark.parametrize(
    "reason",
    [
        "Dependency",
        "BeginTime",
        "Licenses",
        "PartitionTimeLimit",
        "QOSMaxJobsPerUserLimit",
        "AssocGrpGRES",
        "JobArrayTaskLimit",
        "Reservation",
        "BadConstraints",
        "JobHoldMaxRequeue",
    ],
)
def test_reasons_that_they_are_not_an_answer_to(reason: str) -> None:
    found = queue(replace(JOB, reason=reason))
    assert not found.demands
    assert reason in found.unserved[0].why


def test_jobs_that_are_left_alone() -> None:
    for job, up, why, step in (
        (replace(JOB, priority=0, reason="JobHeldUser"), True, "it is held (JobHeldUser)", f"release {JOB.id}"),
        (replace(JOB, eligible=101), True, "its start time is in the future, in 1 s", ""),
        (JOB, False, "is not UP in Slurm", f"show partition {JOB.partitions[0]}"),
        (replace(JOB, reservation="friday 13"), True, "the reservation friday 13", "show reservation 'friday 13'"),
        (replace(JOB, reason="Dependency"), True, "that no layout changes: Dependency", f"show job {JOB.id}"),
    ):
        (found,) = queue(job, up=up).unserved
        assert why in found.why
        assert found.next_step == (step and f"scontrol {step}")
    assert "no GPU type" in queue(replace(JOB, requested=(("node", Gres("gpu", "", 1)),))).unserved[0].why
    assert queue(replace(JOB, state="RUNNING"), replace(JOB, requested=())) == JobQueue()


def test_a_job_whose_turn_it_is_not_follows() -> None:
    assert queue(replace(JOB, reason="Priority")).demands[0].follows


def test_the_order_is_priority_then_age() -> None:
    jobs = [replace(JOB, id=n, priority=p, submitted=s) for n, p, s in ((1, 1, 5), (2, 9, 8), (3, 9, 7), (4, 9, 7))]
    assert [w.job for w in queue(*jobs).demands] == [3, 4, 2, 1]


def test_features_that_name_layouts_are_reported_from_others() -> None:
    (want,) = queue(replace(JOB, requested=(), features="ib&mig_2x3g")).demands
    assert (want.layouts, want.features, want.need) == (("mig_2x3g",), ("ib",), {})
    (want,) = queue(replace(JOB, requested=(), features="[mig_2x3g|mig_7x1g]")).demands
    assert want.layouts == ("mig_2x3g", "mig_7x1g")
    assert not queue(replace(JOB, requested=(), features="ib")).unserved


ARRAY = replace(JOB, array_job=5, array_tasks=16)


def test_each_waiting_task_of_an_array_counts() -> None:
    (want,) = queue(ARRAY).demands
    assert (want.copies, want.need) == (16, {"a100_1g.5gb": 2})
    assert queue(JOB).demands[0].copies == 1


def test_an_array_limit_counts_the_tasks_that_run() -> None:
    limited = replace(ARRAY, array_limit=4)
    tasks = [replace(limited, id=10 + n, state="RUNNING", array_tasks=1) for n in range(3)]
    ending = replace(limited, id=20, state="COMPLETING", array_tasks=1)
    assert queue(limited).demands[0].copies == 4
    assert queue(limited, *tasks, ending).demands[0].copies == 1
    requeued = replace(limited, id=9, array_tasks=1, submitted=6)
    assert [(w.job, w.copies) for w in queue(limited, requeued, *tasks[:2]).demands] == [(9, 1), (5, 1)]
    stale = replace(limited, reason="JobArrayTaskLimit")
    assert queue(stale, *tasks).demands[0].copies == 1, "a task ended since Slurm considered the array"
    full = queue(stale, *tasks, replace(tasks[0], id=30))
    assert not full.demands
    assert full.unserved[0].why == "as many tasks of its array run as may run at a time"


def test_a_job_of_the_highest_priority_comes_first_however_late_it_is_submitted() -> None:
    urgent = replace(JOB, id=99, priority=999_999, submitted=90)
    assert next(w.job for w in queue(JOB, ARRAY, urgent).demands) == 99


def test_a_reservation_matters_only_if_it_begins_before_the_job_would_end() -> None:
    days = SlurmReservation("maintenance", ("n1",), ("MAINT",), start=90_000, end=99_000)
    now = SlurmReservation("others", ("n2",), (), start=50, end=5_000)
    over = SlurmReservation("over", ("n3",), (), start=10, end=90)
    for limit, reserved in ((0, {"n1", "n2"}), (3_600, {"n2"}), (100_000, {"n1", "n2"})):
        job = replace(JOB, time_limit_s=limit)
        (want,) = job_queue([job], [SlurmPartition("all")], LAYOUTS, 100.0, (days, now, over)).demands
        assert want.reserved == reserved


def reasons() -> list[tuple[str, bool]]:
    """Return every pending reason of 22.05 and 24.11, and whether another layout can resolve it."""
    resolved = ("None", "Priority", "Resources", "ReqNodeNotAvail", "SchedDefer")
    return [(word, word in resolved) for word in REASONS.split()]


REASONS = """
None Priority Dependency Resources PartitionNodeLimit PartitionTimeLimit PartitionDown PartitionInactive JobHeldAdmin
JobHeldUser BeginTime Licenses AssociationJobLimit AssociationResourceLimit AssociationTimeLimit Reservation
ReservationDeleted ReqNodeNotAvail FrontEndDown SchedDefer NodeDown BadConstraints SystemFailure JobLaunchFailure
NonZeroExitCode TimeLimit InactiveLimit InvalidAccount InvalidQOS QOSUsageThreshold QOSJobLimit QOSResourceLimit
QOSTimeLimit RaisedSignal Cleaning Prolog QOSNotAllowed AccountNotAllowed DependencyNeverSatisfied QOSGrpCpuLimit
QOSGrpCPUMinutesLimit QOSGrpCPURunMinutesLimit QOSGrpJobsLimit QOSGrpMemLimit QOSGrpNodeLimit QOSGrpSubmitJobsLimit
QOSGrpWallLimit QOSMaxCpuPerJobLimit QOSMaxCpuMinutesPerJobLimit QOSMaxNodePerJobLimit QOSMaxWallDurationPerJobLimit
QOSMaxCpuPerUserLimit QOSMaxJobsPerUserLimit QOSMaxNodePerUserLimit QOSMaxSubmitJobPerUserLimit QOSMinCpuNotSatisfied
AssocGrpCpuLimit AssocGrpCPUMinutesLimit AssocGrpCPURunMinutesLimit AssocGrpJobsLimit AssocGrpMemLimit
AssocGrpNodeLimit AssocGrpSubmitJobsLimit AssocGrpWallLimit AssocMaxJobsLimit AssocMaxCpuPerJobLimit
AssocMaxNodePerJobLimit AssocMaxSubmitJobLimit JobHoldMaxRequeue JobArrayTaskLimit BurstBufferResources
BurstBufferStageIn BurstBufferOperation PowerNotAvail PowerReserved AssocGrpGRES AssocGrpGRESMinutes AssocMaxGRESPerJob
AssocGrpLicense QOSGrpGRES QOSMaxGRESPerJob QOSMaxGRESPerNode QOSMaxGRESPerUser QOSMinGRES QOSGrpLicense
"""


@pytest.mark.parametrize(("reason", "resolved"), reasons())
def test_each_reason_of_both_releases_is_slurms_or_ours(reason: str, *, resolved: bool) -> None:
    found = queue(replace(JOB, reason=reason))
    assert bool(found.demands) == resolved
    assert resolved or reason in found.unserved[0].why


@pytest.mark.parametrize(
    ("how", "count", "least", "most", "parts"),
    [
        ("task", 2, 1, 0, ({"a100_1g.5gb": 2}, 1, 4, True)),
        ("task", 2, 1, 4, ({"a100_1g.5gb": 2}, 1, 4, True)),
        ("task", 2, 1, 1, ({"a100_1g.5gb": 8}, 1, 1, False)),
        ("task", 2, 2, 2, ({"a100_1g.5gb": 4}, 2, 1, False)),
        ("job", 6, 2, 0, ({"a100_1g.5gb": 1}, 1, 6, True)),
        ("job", 6, 1, 1, ({"a100_1g.5gb": 6}, 1, 1, False)),
        ("job", 1, 1, 0, ({"a100_1g.5gb": 1}, 1, 1, False)),
        ("node", 2, 1, 0, ({"a100_1g.5gb": 2}, 1, 1, False)),
    ],
)
def test_a_job_that_slurm_may_spread_over_nodes_is_its_parts(
    how: str, count: int, least: int, most: int, parts: tuple[dict[str, int], int, int, bool]
) -> None:
    job = replace(JOB, requested=((how, replace(SLICE, count=count)),), node_count=least, node_limit=most, cpus=8)
    (want,) = queue(job).demands
    assert (want.need, want.nodes, want.copies, want.spread) == parts
    (array,) = queue(replace(job, array_job=5, array_tasks=3)).demands
    assert array.copies == 3 * want.copies
