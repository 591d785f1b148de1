"""Metrics of the Slurm controller: pending jobs, records, changes, and the time that jobs waited for their slices."""

from __future__ import annotations

from aliquot.slurm.client.models import Gres, SlurmNode
from aliquot.slurm.controller.job_demand import JobDemand, JobQueue
from aliquot.slurm.controller.metrics import SlurmMetrics
from aliquot.slurm.controller.models import (
    JobVerdict,
    SlurmDecision,
    SlurmNodeState,
    SlurmObservation,
    SlurmState,
)
from aliquot.slurm.controller.settings import ManagedNode


def value(metrics: SlurmMetrics, name: str, **labels: str) -> float | None:
    return metrics.page.registry.get_sample_value(name, labels)


def record(name: str, *, jobs: int = 0, shut: str = "", failure: str = "") -> SlurmNodeState:
    node = SlurmNode(name, frozenset({"IDLE"}), gres=(Gres("gpu", "a100_1g.5gb", 7),))
    return SlurmNodeState(ManagedNode(name), node, jobs=jobs, shut=shut, failure=failure)


def make_observation(
    now: float, *records: SlurmNodeState, wants: tuple[JobDemand, ...] = (), running: frozenset[int] = frozenset()
) -> SlurmObservation:
    return SlurmObservation(SlurmState(records), JobQueue(wants), (), now, running)


def test_a_look() -> None:
    metrics = SlurmMetrics()
    wants = (
        JobDemand(7, {"a100_3g.20gb": 1}, submitted=100, eligible=160),
        JobDemand(8, {"a100_3g.20gb": 1}, submitted=500),
    )
    seen = make_observation(
        1000.0, record("a"), record("b", jobs=2), record("c", shut="no"), record("d", failure="x"), wants=wants
    )
    metrics.on_observation(
        seen, SlurmDecision(verdicts=(JobVerdict(7, "waits", "none"), JobVerdict(8, "cut", "a is cut for it")))
    )
    assert value(metrics, "aliquot_slurm_up") == 1
    assert value(metrics, "aliquot_slurm_jobs", state="waits") == 1
    assert value(metrics, "aliquot_slurm_jobs", state="covered") == 0
    assert value(metrics, "aliquot_slurm_oldest_demand_timestamp_seconds") == 160
    states = {
        s: value(metrics, "aliquot_slurm_records", state=s) for s in ("idle", "busy", "changing", "shut", "failed")
    }
    assert states == {"idle": 1, "busy": 1, "changing": 0, "shut": 1, "failed": 1}
    assert value(metrics, "aliquot_slurm_free_devices", type="a100_1g.5gb") == 21
    assert value(metrics, "aliquot_slurm_changes_total", node="a", outcome="failed") == 0


def test_no_job_waits() -> None:
    metrics = SlurmMetrics()
    metrics.on_observation(make_observation(1000.0, record("a")), SlurmDecision())
    assert value(metrics, "aliquot_slurm_oldest_demand_timestamp_seconds") == 0


def test_a_job_that_slices_were_cut_for_is_timed_until_it_is_seen_running() -> None:
    metrics = SlurmMetrics()
    want = JobDemand(7, {"a100_3g.20gb": 1}, submitted=100)
    metrics.on_observation(
        make_observation(110.0, record("a"), wants=(want,)), SlurmDecision(verdicts=(JobVerdict(7, "cut", "a is cut"),))
    )
    metrics.on_observation(
        make_observation(120.0, record("a"), wants=(want,)), SlurmDecision(verdicts=(JobVerdict(7, "waits", ""),))
    )
    metrics.on_observation(make_observation(130.0, record("a"), running=frozenset({7})), SlurmDecision())
    assert value(metrics, "aliquot_slurm_start_seconds_count") == 1
    assert value(metrics, "aliquot_slurm_start_seconds_sum") == 30


def test_a_job_that_is_cancelled_and_one_that_nothing_was_cut_for_are_not() -> None:
    metrics = SlurmMetrics()
    wants = (JobDemand(7, {}, submitted=100), JobDemand(8, {}, submitted=100))
    metrics.on_observation(
        make_observation(110.0, wants=wants),
        SlurmDecision(verdicts=(JobVerdict(7, "cut", ""), JobVerdict(8, "waits", ""))),
    )
    metrics.on_observation(make_observation(120.0, running=frozenset({8})), SlurmDecision())
    metrics.on_observation(make_observation(130.0, running=frozenset({7})), SlurmDecision())
    assert value(metrics, "aliquot_slurm_start_seconds_count") == 0


def test_changes_by_record_and_the_oldest_of_those_under_way() -> None:
    metrics = SlurmMetrics()
    metrics.on_change_started("a", 100.0)
    metrics.on_change_started("b", 200.0)
    assert value(metrics, "aliquot_slurm_change_started_timestamp_seconds") == 100
    metrics.on_change_ended("a", 160.0, True)
    assert value(metrics, "aliquot_slurm_change_started_timestamp_seconds") == 200
    metrics.on_change_ended("b", 230.0, False)
    assert value(metrics, "aliquot_slurm_change_started_timestamp_seconds") == 0
    assert value(metrics, "aliquot_slurm_changes_total", node="a", outcome="done") == 1
    assert value(metrics, "aliquot_slurm_changes_total", node="b", outcome="failed") == 1
    assert value(metrics, "aliquot_slurm_change_seconds_sum") == 90


def test_while_slurm_is_unavailable_nothing_old_is_reported_of_it() -> None:
    metrics = SlurmMetrics()
    metrics.on_observation(make_observation(1000.0, record("a")), SlurmDecision())
    metrics.unavailable()
    assert value(metrics, "aliquot_slurm_up") == 0
    assert value(metrics, "aliquot_slurm_records", state="idle") is None
    assert b"aliquot_slurm_free_devices{" not in metrics.page.text()
