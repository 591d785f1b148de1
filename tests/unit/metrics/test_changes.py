"""Counters of plans and applies."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from aliquot.core.engine.context import ApplyOutcome
from aliquot.core.engine.step_timing import TimedStep
from aliquot.core.model.plan import Blocker, Plan
from aliquot.core.planner.plan import plan
from aliquot.errors import HardwareError, InUseError, StalePlanError
from aliquot.metrics import instruments as make
from aliquot.metrics.apply_metrics import ApplyMetrics
from laws.oracle import mig_nodes
from unit.metrics.snapshots import A100, plain


def counted() -> tuple[ApplyMetrics, CollectorRegistry]:
    registry = make.registry()
    return ApplyMetrics(registry), registry


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(name, labels)


def test_acts_that_failed_were_not_done_and_took_their_time_all_the_same() -> None:
    changes, registry = counted()
    changes.record_step(TimedStep("create", 2.0, "1g.5gb", is_action=True))
    changes.record_step(TimedStep("create", 1.0, "1g.5gb", code="HARDWARE", is_action=True))
    changes.record_step(TimedStep("verify", 0.5))
    assert value(registry, "aliquot_acts_total", act="create", profile="1g.5gb") == 1
    assert value(registry, "aliquot_change_step_seconds_sum", step="create") == 3.0
    assert value(registry, "aliquot_change_step_seconds_count", step="verify") == 1
    assert value(registry, "aliquot_acts_total", act="verify", profile="") is None


def test_outcomes_are_there_from_the_start_so_that_their_first_increase_shows() -> None:
    _, registry = counted()
    for outcome in ("nothing", "done", "reboot", "undone", "partial", "refused"):
        assert value(registry, "aliquot_changes_total", outcome=outcome) == 0


def test_an_error_that_leaves_is_a_refusal_and_one_in_the_outcome_a_failure() -> None:
    changes, registry = counted()

    def refused() -> None:
        with changes.time_change():
            assert value(registry, "aliquot_change_started_timestamp_seconds")
            raise StalePlanError("it moved")

    with pytest.raises(StalePlanError):
        refused()
    assert value(registry, "aliquot_change_started_timestamp_seconds") == 0
    assert value(registry, "aliquot_changes_total", outcome="refused") == 1
    assert value(registry, "aliquot_change_failures_total", code="MOVED") == 1
    changes.record_outcome(ApplyOutcome("undone", plain(), error=HardwareError("no")))
    assert value(registry, "aliquot_changes_total", outcome="undone") == 1
    assert value(registry, "aliquot_change_failures_total", code="HARDWARE") == 1
    assert value(registry, "aliquot_held_refusals_total") == 0
    changes.record_outcome(ApplyOutcome("undone", plain(), error=InUseError("held")))
    assert value(registry, "aliquot_held_refusals_total") == 1
    assert value(registry, "aliquot_change_seconds_count") == 1


def test_two_changes_at_once_are_as_old_as_the_first() -> None:
    changes, registry = counted()
    changes.start_change(100.0)
    changes.start_change(200.0)
    assert value(registry, "aliquot_change_started_timestamp_seconds") == 100
    changes.finish_change(100.0, 1.0)
    assert value(registry, "aliquot_change_started_timestamp_seconds") == 200
    changes.finish_change(200.0, 1.0)
    assert value(registry, "aliquot_change_started_timestamp_seconds") == 0


def test_a_plan_that_holders_block_is_known_by_its_rule() -> None:
    changes, registry = counted()
    held = plan(plain(), mig_nodes.desired_state(A100, ["7g.40gb"]))
    assert [b.rule for b in held.blockers] == ["HELD"]
    assert changes.is_blocked_by_holders(held)
    for rule in ("PASSTHROUGH", "FUNCTIONS_IN_USE"):
        assert changes.is_blocked_by_holders(Plan("n", "", held.desired, blockers=(Blocker(rule, "in use"),)))
    other = Plan("n", "", held.desired, blockers=(Blocker("PLACEMENT", "no"),))
    assert not changes.is_blocked_by_holders(other)
    changes.count_held_refusal()
    assert value(registry, "aliquot_held_refusals_total") == 1


def test_planning_is_a_step() -> None:
    changes, registry = counted()
    with changes.time_plan():
        pass
    assert value(registry, "aliquot_change_step_seconds_count", step="plan") == 1
