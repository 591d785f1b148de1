"""What runtimes are asked: little, however many reservations there are, since every pick waits for the one before."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from aliquot.containers.runtime.expire import expire_reservations
from aliquot.containers.runtime.models import ContainerReservation
from aliquot.containers.runtime.runtimes import RuntimeQueries

PODMAN = """#!/bin/sh
echo "$*" >> "$0.calls"
[ "$1" != events ] || echo '{"Status":"remove","Attributes":{"aliquot.reservation":"r2"}}'
"""


def reservation(number: int) -> ContainerReservation:
    return ContainerReservation(f"r{number}", "podman", (f"MIG-{number}",), ("1g.5gb",), 1000.0 + number, 9000.0)


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Podman of a host without containers, from which the one of r2 was removed; the lines that it was asked."""
    (tmp_path / "podman").write_text(PODMAN)
    (tmp_path / "podman").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return tmp_path / "podman.calls"


def test_twenty_reservations_cost_as_many_questions_as_one(calls: Path) -> None:
    every = [reservation(n) for n in range(20)]
    present = frozenset(uuid for each in every for uuid in each.devices)
    answers = RuntimeQueries()
    settled = expire_reservations(every, answers.containers_for, present, 2000.0, answers.departed)
    assert [e.reservation.id for e in settled.ended] == ["r2"]
    assert len(settled.active) == 19
    assert [line.split()[0] for line in calls.read_text().splitlines()] == ["ps", "events"]


def test_an_older_reservation_is_asked_for_from_its_own_beginning(calls: Path) -> None:
    answers = RuntimeQueries()
    assert not answers.departed(reservation(3))
    assert answers.departed(reservation(2))
    assert not answers.departed(replace(reservation(4), connection_env={"CONTAINER_HOST": "unix:///elsewhere"}))
    asked = [line.split()[2] for line in calls.read_text().splitlines()]
    assert asked == ["1003", "1002", "1004"], "and another way to reach it is another question"
