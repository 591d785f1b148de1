"""A journal that a power failure left truncated, corrupt or unwritable: the next apply works, or reports the reason."""

from __future__ import annotations

import os

import pytest

from aliquot.hardware.state.journal import FileJournal
from laws.crash import cases
from laws.crash.bench import KILLED, Bench, Machine

SLOW = pytest.mark.slow


def _cut_off(bench: Bench) -> tuple[Machine, bytes]:
    """Return a host on which a saved plan was interrupted in the middle, and its journal."""
    machine = bench.machine(cases.REPARTITION)
    machine.save()
    machine.node.inject_fault("kill", when="after", nth=3)
    assert machine.run(*machine.as_saved).code == KILLED
    with open(machine.journal, "rb") as file:
        return machine, file.read()


def _lengths(journal: bytes) -> range:
    """Return every length at which the last record is truncated or missing."""
    return range(journal.rstrip(b"\n").rindex(b"\n") + 1, len(journal))


def test_every_cut_of_the_last_record_leaves_the_others(bench: Bench) -> None:
    machine, journal = _cut_off(bench)
    whole = list(FileJournal(machine.journal).entries())
    for length in _lengths(journal):
        with open(machine.journal, "wb") as file:
            file.write(journal[:length])
        found = list(FileJournal(machine.journal).entries())
        # The last record is complete if only its newline is missing.
        assert found == (whole if length == len(journal) - 1 else whole[:-1]), length


@pytest.mark.parametrize("share", [0.0, 0.4, 0.999, *[pytest.param(n / 24, marks=SLOW) for n in range(1, 24)]])
def test_a_torn_last_record_does_not_stop_the_next_apply(bench: Bench, share: float) -> None:
    machine, journal = _cut_off(bench)
    lengths = _lengths(journal)
    with open(machine.journal, "wb") as file:
        file.write(journal[: lengths[int(share * len(lengths))]])
    machine.assert_finishes(*machine.as_saved)
    again = FileJournal(machine.journal).entries()
    assert (again[0].kind, again[-1].kind) == ("begin", "end"), "the truncated line swallowed no record"


GARBAGE = {
    "zeros": bytes(4096),
    "half a line": b'deadbeef {"kind":"inte',
    "a false checksum": b'00000000 {"kind":"end","run":"x"}\n',
    "binary": bytes(range(256)) * 3 + b"\n",
    "no record": b"[1, 2, 3]\n\n\n{}\n\xff\xfe",
}


@pytest.mark.parametrize("kind", GARBAGE)
def test_garbage_behind_the_records_does_not_stop_the_next_apply(bench: Bench, kind: str) -> None:
    machine, _journal = _cut_off(bench)
    with open(machine.journal, "ab") as file:
        file.write(GARBAGE[kind])
    machine.assert_finishes(*machine.as_saved)
    again = FileJournal(machine.journal).entries()
    assert (again[0].kind, again[-1].kind) == ("begin", "end")


def test_without_its_journal_a_saved_plan_is_refused_and_the_request_is_not(bench: Bench) -> None:
    machine, _journal = _cut_off(bench)
    os.unlink(machine.journal)
    found = machine.run(*machine.as_saved)
    assert (found.code, found.error["code"]) == (20, "MOVED"), found
    assert len(machine.writes()) == 3
    machine.assert_finishes()


def test_a_journal_that_cannot_be_opened_stops_the_apply_before_anything_is_touched(bench: Bench) -> None:
    machine = bench.machine(cases.REPARTITION)
    os.mkdir(machine.journal)
    found = machine.apply()
    assert (found.code, found.error["code"]) == (20, "STORAGE"), found
    assert machine.journal in found.error["message"]
    assert machine.writes() == []
    os.rmdir(machine.journal)
    machine.assert_finishes()
