"""When a definition that another program overwrites is repaired: at once the first time, then later and later."""

from __future__ import annotations

from aliquot.kubernetes.virtual_machines.controller.definition_repair import RepairPace, RepairTiming

NAME, OTHER = "migconfigurations.devices.harvesterhci.io", "vgpudevices.devices.harvesterhci.io"


class Clock:
    """A clock that only a test moves."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def overwrite(pace: RepairPace, clock: Clock) -> tuple[bool, float]:
    """Report an overwritten definition, wait until it is due, and repair it."""
    soon, due_s = pace.notice(NAME), pace.due_in(NAME)
    clock.now += due_s
    assert pace.due_in(NAME) == 0.0
    pace.record_repair(NAME)
    return soon, due_s


def test_each_repair_in_a_row_waits_longer_up_to_an_hour() -> None:
    clock = Clock()
    pace = RepairPace(RepairTiming(), clock)
    found = [overwrite(pace, clock) for _ in range(9)]
    assert found[:4] == [(False, 0.0), (True, 60.0), (True, 120.0), (True, 240.0)]
    assert found[-1] == (True, 3600.0)
    assert pace.notice(OTHER) is False
    assert pace.due_in(OTHER) == 0.0


def test_a_definition_that_stayed_complete_for_ten_minutes_starts_over() -> None:
    clock = Clock()
    pace = RepairPace(RepairTiming(), clock)
    assert [overwrite(pace, clock)[0] for _ in range(3)] == [False, True, True]
    clock.now += 600.0
    assert overwrite(pace, clock) == (False, 0.0)


def test_a_wait_is_reported_once_and_ends_when_someone_else_repairs() -> None:
    clock = Clock()
    pace = RepairPace(RepairTiming(), clock)
    overwrite(pace, clock)
    assert [pace.notice(NAME), pace.notice(NAME)] == [True, False]
    pace.forget(NAME)
    assert pace.notice(NAME) is True
