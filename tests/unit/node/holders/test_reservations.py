"""The record of reservations on disk."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from aliquot.containers.runtime.models import ContainerReservation
from aliquot.errors import LockedError, PermissionDeniedError, StorageError
from aliquot.node.holders.reservations import ReservationFile
from unit.containers.runtime.nodes import reservation


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    store = ReservationFile(str(tmp_path))
    assert store.load() == ()
    made = (reservation(connection_env={"DOCKER_HOST": "unix:///x"}), reservation("r2", until=None, container="c" * 64))
    with store.exclusive(1):
        store.save(made)
    assert store.load() == made
    assert sorted(p.name for p in tmp_path.iterdir()) == ["container-reservations.json", "reservations.lock"]
    assert os.stat(store.path).st_mode & 0o777 == 0o644
    # any user who can open it could hold the lock
    assert os.stat(tmp_path / "reservations.lock").st_mode & 0o777 == 0o600


@pytest.mark.parametrize("text", ["", "{", '{"version": 1}', "[]"])
def test_a_record_that_is_none_counts_as_empty(tmp_path: Path, text: str) -> None:
    store = ReservationFile(str(tmp_path))
    Path(store.path).write_text(text)
    assert store.load() == ()


def test_a_disk_that_does_not_take_it_leaves_the_previous_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ReservationFile(str(tmp_path))
    store.save([reservation()])

    def full(file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError), store.exclusive(1):
        store.save([])
    monkeypatch.undo()
    assert store.load() == (reservation(),)


_ADD = """
import sys
from aliquot.node.holders.reservations import ReservationFile
from aliquot.containers.runtime.models import ContainerReservation
store = ReservationFile(sys.argv[1])
for n in range(5):
    with store.exclusive(60):
        held = store.load()
        store.save((*held, ContainerReservation(f"{sys.argv[2]}-{n}", "docker", (), (), 0.0, None)))
"""


def test_writers_wait_for_each_other(tmp_path: Path) -> None:
    source = str(Path(__file__).resolve().parents[4] / "src")
    env = {**os.environ, "PYTHONPATH": source}
    every = [subprocess.Popen([sys.executable, "-c", _ADD, str(tmp_path), str(n)], env=env) for n in range(4)]
    assert [p.wait(60) for p in every] == [0] * 4
    ids = {r.id for r in ReservationFile(str(tmp_path)).load()}
    assert ids == {f"{p}-{n}" for p in range(4) for n in range(5)}


def test_waiting_has_an_end(tmp_path: Path) -> None:
    store = ReservationFile(str(tmp_path))
    with store.exclusive(1):
        started = time.monotonic()
        with pytest.raises(LockedError), ReservationFile(str(tmp_path)).exclusive(0.1):
            pass
        assert time.monotonic() - started < 5


def test_a_user_who_may_not_write_is_sent_to_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refused)  # root may write everywhere
    store = ReservationFile(str(tmp_path))
    with pytest.raises(PermissionDeniedError) as caught, store.exclusive(1):
        pass
    assert (caught.value.next_step, caught.value.details) == ("run it as root", ()), "release has no --no-reserve"


def test_a_holder_is_named_after_its_container() -> None:
    each = ContainerReservation("r1", "docker", (), (), 0.0, None, name="web")
    assert str(each.holder) == "reservation docker:r1 (web)"


def test_who_waits_rests_between_two_tries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rests: list[float] = []
    with ReservationFile(str(tmp_path)).exclusive(1):
        monkeypatch.setattr("time.sleep", rests.append)
        with pytest.raises(LockedError), ReservationFile(str(tmp_path)).exclusive(0.02):
            pass
    assert rests
    assert min(rests) > 0
