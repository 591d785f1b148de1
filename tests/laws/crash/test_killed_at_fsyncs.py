"""Kills before and after each fsync of an apply, by a tripwire below Python: production code has no hook for it."""

from __future__ import annotations

import os

import pytest

from aliquot.core.engine.ports import JournalEntry
from aliquot.hardware.state.boot_record_file import BootRecordFile
from aliquot.hardware.state.journal import ROTATE_AT, encode
from aliquot.hardware.state.journal_reader import read
from laws.crash import cases
from laws.crash.bench import FIRST, KILLED, LAST, Bench, Case, Machine, Trip


def _every(when: str) -> list[object]:
    return [
        pytest.param(case, when, id=f"{when}: {case.name}", marks=() if case is cases.REPARTITION else pytest.mark.slow)
        for case in cases.ALL
    ]


@pytest.mark.parametrize(("case", "when"), [*_every("before"), *_every("after")])
def test_killed_at_every_fsync_and_run_again(bench: Bench, case: Case, when: str) -> None:
    for nth in range(1, FIRST + case.calls + LAST + 1):
        machine = bench.machine(case)
        found = machine.apply(Trip(nth, when))
        if case not in cases.ONE_WORKER and found.code == 0:
            assert nth > FIRST + case.calls // 2  # workers that wait at the same time share one fsync
            machine.assert_finished()
            break
        assert found.code == KILLED, found
        if case in cases.ONE_WORKER:
            assert machine.fsyncs() == nth - 1 + (when == "after")
            # The records on disk determine which calls may have been made: no call precedes its record.
            assert len(machine.writes()) == min(max(0, nth - FIRST - 1), case.calls)
        machine.assert_finishes()
        assert _recorded(machine), "the next boot would not know the request"
    machine = bench.machine(case)
    assert machine.apply(Trip(FIRST + case.calls + LAST + 1, when)).code == 0
    machine.assert_finished()


def _recorded(machine: Machine) -> set[str]:
    """Return the GPUs that have a desired state for the next boot."""
    return {kept.desired.pci for kept in BootRecordFile(machine.folder).load()}


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_killed_while_an_old_journal_is_shortened(bench: Bench, nth: int, when: str) -> None:
    # The last runs are copied to a new file, which replaces the old one: records exist at every moment.
    machine = bench.machine(cases.SPLIT)
    _fill(machine)
    assert machine.apply(Trip(nth, when)).code == KILLED
    assert any(r.text == "the last before" for r in read(machine.journal))
    machine.assert_finishes()
    assert any(r.text == "the last before" for r in read(machine.journal))
    assert os.path.getsize(machine.journal) < ROTATE_AT


def _fill(machine: Machine) -> None:
    with open(machine.journal, "wb") as file:
        for run in range(ROTATE_AT // 4000 + 1):
            file.write(encode(JournalEntry("end", f"{run:012x}", text="x" * 4000)))
        file.write(encode(JournalEntry("end", "ffffffffffff", text="the last before")))
