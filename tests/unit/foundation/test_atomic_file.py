"""State files: complete or absent, on disk, one writer at a time."""

from __future__ import annotations

import os
import re
import threading
import time
from pathlib import Path

import pytest

from aliquot.errors import PermissionDeniedError, StorageError
from aliquot.foundation import atomic_file as store
from aliquot.foundation.lock import exclusive


def test_on_disk_before_it_is_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The new content is synced before it gets the name, and the name before the call returns.
    steps: list[str] = []
    real_sync, real_replace = os.fsync, os.replace

    def sync(handle: int) -> None:
        steps.append("sync " + re.sub(r"\d+", "N", os.path.basename(os.readlink(f"/proc/self/fd/{handle}"))))
        real_sync(handle)

    def replace(old: str, new: str) -> None:
        steps.append("rename")
        real_replace(old, new)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "replace", replace)
    store.replace(str(tmp_path / "lib" / "map"), b"one")
    assert steps[1:] == ["sync .map.N.tmp", "rename", "sync lib"], "after the parent of the new folder"
    assert (tmp_path / "lib" / "map").read_bytes() == b"one"


def test_what_cannot_be_written_leaves_what_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "map"
    store.replace(str(path), b"one")

    def full(handle: int) -> None:
        raise OSError(28, "no space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        store.replace(str(path), b"two")
    assert path.read_bytes() == b"one"
    assert os.listdir(tmp_path) == ["map"]


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises((NotADirectoryError, FileExistsError)):
        store.replace(str(tmp_path / "file" / "map"), b"")
    with pytest.raises(StorageError), exclusive(str(tmp_path / "file" / "map")):
        pass
    denied = store.denied("x", PermissionError(13, "no"))
    assert isinstance(denied, PermissionDeniedError)
    assert isinstance(denied, StorageError), "a caller that continues without a state file does so for each reason"


def test_one_at_a_time(tmp_path: Path) -> None:
    inside: list[int] = []
    most: list[int] = []

    def change() -> None:
        with exclusive(str(tmp_path / "map")):
            inside.append(1)
            most.append(len(inside))
            time.sleep(0.02)
            inside.pop()

    threads = [threading.Thread(target=change) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("number", "step"),
    [
        (28, "free space there"),
        (40, "remove the symbolic link"),
        (30, "mount that file system writable"),
        (5, "dmesg"),
        (20, "make it"),
    ],
)
def test_the_next_step_is_for_what_failed(number: int, step: str) -> None:
    advice = str(store.denied("x", OSError(number, os.strerror(number))).next_step)
    assert step in advice
    assert ("free space" in advice) == (number in (28, 20))


def test_folders_are_for_all_to_read_and_for_their_owner_to_write(tmp_path: Path) -> None:
    previous = os.umask(0)
    try:
        store.replace(str(tmp_path / "lib" / "map"), b"")
        with exclusive(str(tmp_path / "run" / "map")):
            pass
    finally:
        os.umask(previous)
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("lib", "run")] == [0o755, 0o755]
    assert (tmp_path / "lib" / "map").stat().st_mode & 0o777 == 0o644


def test_what_a_killed_process_left_behind_costs_no_previous_content(tmp_path: Path) -> None:
    path, old = tmp_path / "map", tmp_path / "map.previous"
    store.replace(str(path), b"one", old=str(old))
    for name in (".map", ".map.previous"):
        (tmp_path / f"{name}.{threading.get_native_id()}.tmp").write_bytes(b"half")
    store.replace(str(path), b"two", old=str(old))
    assert (path.read_bytes(), old.read_bytes()) == (b"two", b"one")
    assert sorted(os.listdir(tmp_path)) == ["map", "map.previous"]


def test_a_process_that_was_killed_after_it_kept_the_content_leaves_no_third_name(tmp_path: Path) -> None:
    path, old = tmp_path / "map", tmp_path / "map.previous"
    path.write_bytes(b"one")
    os.link(path, old)
    store.replace(str(path), b"two", old=str(old))
    assert (path.read_bytes(), old.read_bytes()) == (b"two", b"one")
    assert sorted(os.listdir(tmp_path)) == ["map", "map.previous"]


def test_a_file_of_another_owner_is_given_to_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owners: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "fchown", lambda _, user, group: owners.append((user, group)))
    own = os.geteuid(), os.getegid()
    store.replace(str(tmp_path / "map"), b"one", owner=own)
    store.replace(str(tmp_path / "map"), b"two", owner=(own[0] + 1, own[1]))
    assert owners == [(own[0] + 1, own[1])]
