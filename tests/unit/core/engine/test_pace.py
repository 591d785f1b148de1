"""Expected duration of a plan, from the journal's records of earlier plans."""

from __future__ import annotations

from aliquot.core.engine.duration_estimate import LATEST, expected_seconds, measured_durations
from aliquot.core.engine.journal_step import JournalStep
from aliquot.core.engine.ports import JournalEntry
from aliquot.core.model.actions import Action, ComputePart, Create, Destroy, Reset, SetMode
from aliquot.core.model.desired import Desired
from aliquot.core.model.plan import Plan

ONE, TWO = "0000:01:00.0", "0000:02:00.0"


def call(step: str, at: float, seconds: float, gpu: str = ONE) -> tuple[JournalEntry, JournalEntry]:
    return (
        JournalEntry("intent", "r", gpu=gpu, step=step, at=at),
        JournalEntry("done", "r", gpu=gpu, step=step, at=at + seconds),
    )


def create(gpu: str) -> Create:
    return Create(
        gpu=gpu, reason="", profile="1g.5gb", profile_id=19, placement="0:1", compute=(ComputePart("1g.5gb", 0),)
    )


def plan(*actions: Action) -> Plan:
    return Plan("n", "f", Desired(()), actions, changes=True)


PAST = (
    *call("create gi 1g.5gb 0:1", 100, 0.25),
    *call("create ci 7/0", 101, 0.125),
    *call("destroy ci 7/0", 102, 0.125),
    *call("destroy gi 7 1g.5gb 0:1", 103, 0.5),
    *call("mode enabled", 104, 5.0),
)


def test_workers_run_side_by_side() -> None:
    known = measured_durations(PAST)
    assert expected_seconds(plan(create(ONE)), known) == 0.375
    assert expected_seconds(plan(create(ONE), create(TWO)), known) == 0.375
    gone = Destroy(
        gpu=ONE, reason="", instance=9, profile="1g.5gb", profile_id=19, placement="2:1", compute_instances=(0,)
    )
    assert expected_seconds(plan(gone, create(ONE), create(TWO)), known) == 1.0


def test_nothing_is_reported_of_what_was_never_done_here() -> None:
    assert expected_seconds(plan(create(ONE)), {}) is None
    other = Create(gpu=TWO, reason="", profile="3g.20gb", profile_id=9, placement="4:4", compute=())
    assert expected_seconds(plan(create(ONE), other), measured_durations(PAST)) is None
    assert expected_seconds(plan(), measured_durations(PAST)) is None


def test_a_reset_that_the_driver_does_itself_takes_no_time() -> None:
    mode, reset = SetMode(gpu=ONE, reason="", mode="enabled"), Reset(gpu=ONE, reason="")
    assert expected_seconds(plan(mode, reset), measured_durations(PAST)) == 5.0
    assert expected_seconds(plan(mode, reset), measured_durations((*PAST, *call("reset", 200, 3.0)))) == 8.0
    assert expected_seconds(plan(reset), {}) is None


def test_the_middle_of_the_latest_counts() -> None:
    old = [r for n in range(20) for r in call("create gi 1g.5gb 0:1", n, 100.0)]
    new = [r for n in range(LATEST) for r in call("create gi 1g.5gb 3:1", 50 + n, 0.5 + n)]
    assert measured_durations([*old, *new]) == {JournalStep("create", kind="gi", name="1g.5gb"): 4.5}


def test_a_clock_that_was_set_and_a_run_that_was_cut_off_tell_nothing() -> None:
    assert measured_durations(call("reset", 100, -7.0)) == {}
    assert measured_durations(call("reset", 100, 7200.0)) == {}
    assert measured_durations(call("reset", 100, 1.0)[:1]) == {}
    assert (
        measured_durations(
            (
                JournalEntry("intent", "r", gpu=ONE, step="reset"),
                JournalEntry("done", "r", gpu=ONE, step="reset", at=5.0),
            )
        )
        == {}
    )
