"""Queries to container runtimes: few, however many reservations exist, because each pick waits for the previous one."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from aliquot.containers.runtime.errors import RuntimeUnavailableError
from aliquot.containers.runtime.expire import expire_reservations
from aliquot.containers.runtime.models import ContainerReservation
from aliquot.containers.runtime.runtimes import ContainerRuntime, RuntimeQueries

PODMAN = """#!/bin/sh
echo "$*" >> "$0.calls"
[ "$1" != events ] || echo '{"Status":"remove","Attributes":{"aliquot.reservation":"r2"}}'
"""


def reservation(number: int) -> ContainerReservation:
    return ContainerReservation(f"r{number}", "podman", (f"MIG-{number}",), ("1g.5gb",), 1000.0 + number, 9000.0)


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Simulate Podman without containers, after the container of r2 was removed. Return the file with its calls."""
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
    assert asked == ["1003", "1002", "1004"], "another way to reach it needs another query"


def test_a_long_error_begins_with_a_whole_word(calls: Path) -> None:
    calls.with_name("podman").write_text(f"#!/bin/sh\necho {'first ' * 60}last >&2; exit 1\n")
    with pytest.raises(RuntimeUnavailableError) as caught:
        ContainerRuntime("podman").containers()
    assert str(caught.value) == f"podman ps fails: ... {'first ' * 49}last"
