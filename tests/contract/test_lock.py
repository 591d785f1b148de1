"""Lock contract: one holder at a time, whose name the other process learns, and no lock left by a killed process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from aliquot.core.engine.ports import Lock
from aliquot.errors import LockedError, StorageError
from aliquot.foundation import lock
from aliquot.foundation.lock import FileLock, exclusive, since

HOLDER = """
import sys
from aliquot.foundation.lock import FileLock
with FileLock(sys.argv[1]).hold():
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def another_process(path: str) -> Iterator[subprocess.Popen[str]]:
    """Start a process that holds the lock until its stdin is closed."""
    command = [sys.executable, "-c", HOLDER, path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        try:
            yield child
        finally:
            child.kill()


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "run" / "lock")


def test_is_a_lock_that_can_be_taken_again(path: str) -> None:
    lock: Lock = FileLock(path)
    with lock.hold():
        pass
    with lock.hold():
        pass


def test_two_in_one_process_exclude_each_other(path: str) -> None:
    with FileLock(path).hold(), pytest.raises(LockedError) as caught, FileLock(path).hold():
        pass
    assert f"process {os.getpid()} " in caught.value.brief


def test_another_process_is_named_with_its_command(path: str) -> None:
    with another_process(path) as child:
        with pytest.raises(LockedError) as caught, FileLock(path).hold():
            pass
        assert f"process {child.pid} " in caught.value.brief
        assert "FileLock" in caught.value.brief
        assert caught.value.next_step


def test_it_is_free_when_its_holder_ends(path: str) -> None:
    with another_process(path) as child:
        child.communicate("")
        with FileLock(path).hold():
            pass


def test_kill_9_frees_it(path: str) -> None:
    with another_process(path) as child:
        child.send_signal(signal.SIGKILL)
        child.wait()
        with FileLock(path).hold():
            pass


def test_a_hook_that_outlives_us_does_not_inherit_it(path: str) -> None:
    with FileLock(path).hold():
        sleeper = subprocess.Popen(["sleep", "30"], close_fds=False)
    try:
        with FileLock(path).hold():
            pass
    finally:
        sleeper.kill()
        sleeper.wait()


def test_since_when_it_is_held_is_known(path: str) -> None:
    # An earlier run in the journal belongs to another process.
    assert since(path) == 0.0
    before = time.time()
    for _ in range(2):
        with FileLock(path).hold():
            assert before - 0.05 <= since(path) <= time.time()
        os.utime(path, (1, 1))


def test_an_error_inside_frees_it(path: str) -> None:
    with pytest.raises(ZeroDivisionError), FileLock(path).hold():
        raise ZeroDivisionError
    with FileLock(path).hold():
        pass


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file")
    with pytest.raises(StorageError), FileLock(str(tmp_path / "run" / "lock")).hold():
        pass


def test_another_user_cannot_open_what_is_locked(tmp_path: Path) -> None:
    # flock needs no write permission: any user who can read the lock file could hold the lock.
    lock, link = tmp_path / "lock", tmp_path / "link"
    lock.touch(0o644)
    with FileLock(str(lock)).hold():
        assert lock.stat().st_mode & 0o777 == 0o600
    with FileLock(str(tmp_path / "new")).hold():
        assert (tmp_path / "new").stat().st_mode & 0o777 == 0o600
    with exclusive(str(tmp_path / "owners.json")):
        assert (tmp_path / "owners.json.lock").stat().st_mode & 0o777 == 0o600
    link.symlink_to(lock)
    with pytest.raises(StorageError), FileLock(str(link)).hold():
        pass


def test_a_file_that_cannot_be_read_names_no_owner(tmp_path: Path) -> None:
    assert lock._signature(str(tmp_path / "absent")) == ("", "", "")
    assert lock._holder(str(tmp_path / "absent")) == "another process"
    (tmp_path / "odd").write_bytes(b"not a pid\nplace")
    assert lock._signature(str(tmp_path / "odd")) == ("", "", "")


@pytest.mark.parametrize(
    ("signed", "message"), [("14505 ", "process 14505"), ("14505 aliquot", "process 14505 (aliquot)")]
)
def test_a_holder_without_a_command_is_named_by_its_number(signed: str, message: str, tmp_path: Path) -> None:
    # This process cannot read the command line of a process in another PID namespace.
    path = tmp_path / "lock"
    with FileLock(str(path)).hold():
        path.write_text(f"{signed}\n")
        with pytest.raises(LockedError) as refused, FileLock(str(path)).hold():
            pass
    assert refused.value.holder == message
