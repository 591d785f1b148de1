"""A full disk, at the start or at any record: no action without a record, and a started change is rolled back."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from laws.crash import cases
from laws.crash.bench import Bench

RECORDS = 1 + 2 * cases.REPARTITION.calls
"""Records: the begin record, and an intent and a completion for each call. The end record is the last one."""


def _ends(bench: Bench) -> list[int]:
    """Return the end offset of each record of a complete journal."""
    machine = bench.machine(cases.REPARTITION)
    assert machine.apply().code == 0
    with open(machine.journal, "rb") as file:
        found = [n + 1 for n, byte in enumerate(file.read()) if byte == 10]
    assert len(found) == RECORDS + 1
    return found


def _records() -> list[object]:
    """Return the records that the limit truncates: the first three, one in the middle, the last intent. Slow tests use
    any.
    """
    quick = (0, 1, 2, 7, 11)
    return [pytest.param(n, marks=() if n in quick else pytest.mark.slow) for n in range(RECORDS - 1)]


@pytest.mark.parametrize("record", _records())
def test_a_disk_that_fills_up_at_a_record(bench: Bench, record: int) -> None:
    ends = [0, *_ends(bench)]
    machine = bench.machine(cases.REPARTITION)
    found = machine.apply(limit=(ends[record] + ends[record + 1]) // 2)
    assert (found.code, found.error["code"]) == (20, "STORAGE"), found
    machine.assert_previous()
    if record == 0:
        assert machine.writes() == []
    else:
        assert found.document["status"] == "undone"
    machine.assert_finishes()


def test_a_disk_without_room_for_the_last_record(bench: Bench) -> None:
    # The change is applied and verified. The missing end record is reported but is not a failure, and the next run
    # agrees.
    ends = _ends(bench)
    machine = bench.machine(cases.REPARTITION)
    found = machine.apply(limit=(ends[-2] + ends[-1]) // 2)
    assert (found.code, found.document["status"]) == (0, "done"), found
    assert machine.journal in found.err
    machine.assert_finished()
    assert machine.apply().document["status"] == "nothing"


class Mounts:
    """Mounts that last until the end of a test, because a link in place of a state file is refused."""

    def __init__(self) -> None:
        self._places: list[str] = []

    def add(self, place: str, *words: str) -> None:
        if subprocess.run(["mount", *words, place], capture_output=True).returncode:
            pytest.skip("mounts are not permitted: the tests with a limit on file sizes cover this")
        self._places.append(place)

    def over(self, file: str, source: str) -> None:
        Path(file).touch()
        self.add(file, "--bind", source)

    def undo(self) -> None:
        while self._places:
            subprocess.run(["umount", self._places.pop()], check=True)


@pytest.fixture
def mounts() -> Iterator[Mounts]:
    made = Mounts()
    yield made
    made.undo()


def test_a_full_device(bench: Bench, mounts: Mounts) -> None:
    machine = bench.machine(cases.REPARTITION)
    mounts.over(machine.journal, "/dev/full")
    found = machine.apply()
    assert (found.code, found.error["code"]) == (20, "STORAGE"), found
    assert "No space left" in found.error["message"]
    assert machine.writes() == []
    mounts.undo()
    machine.assert_finishes()


@pytest.mark.parametrize("room", [0, 1000, 1800])
def test_a_file_system_that_fills_up(bench: Bench, mounts: Mounts, tmp_path: Path, room: int) -> None:
    # The journal is on a file system of 16 KiB, with space for none, some or most of the records.
    machine = bench.machine(cases.REPARTITION)
    tiny = tmp_path / "tiny"
    tiny.mkdir()
    mounts.add(str(tiny), "-t", "tmpfs", "-o", "size=16k", "none")
    (tiny / "journal").touch()
    mounts.over(machine.journal, str(tiny / "journal"))
    (tiny / "journal").write_bytes(b"\n" * (16 * 1024 - room))
    found = machine.apply()
    assert (found.code, found.error["code"]) == (20, "STORAGE"), found
    machine.assert_previous()
    (tiny / "journal").write_bytes(b"")
    machine.assert_finishes()
