"""Journal contract: durable records, and no others, are there after any end of the process."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aliquot.core.engine.ports import Journal, JournalEntry
from aliquot.errors import StorageError
from aliquot.hardware.state import journal, journal_reader
from aliquot.hardware.state.journal import FileJournal
from aliquot.hardware.state.journal_reader import JournalPosition, last_run, read, read_added


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "lib" / "change-journal.jsonl")


def run(log: FileJournal, *steps: str) -> str:
    """Append a run with a begin record and these steps. Return its id."""
    name = log.new_run()
    log.append(JournalEntry("begin", name, boot=log.boot, change=msgspec.Raw(b'{"fingerprint":"f"}')), durable=True)
    for step in steps:
        log.append(JournalEntry("intent", name, gpu="0000:07:00.0", step=step), durable=True)
    return name


def test_is_a_journal(path: str) -> None:
    log: Journal = FileJournal(path, "boot-1")
    assert log.boot == "boot-1"
    assert list(log.entries()) == []


def test_records_of_the_last_run_come_back_equal(path: str) -> None:
    log = FileJournal(path, "boot-1")
    run(log, "a")
    last = run(log, "b", "c")
    again = FileJournal(path, "boot-2")
    found = again.entries()
    assert [r.run for r in found] == [last] * 3
    assert [r.step for r in found] == ["", "b", "c"]
    assert found[0].change == msgspec.Raw(b'{"fingerprint":"f"}')
    assert found[0].boot == "boot-1"
    assert found[1].change is None


def test_boot_is_the_kernels_when_none_is_given(path: str) -> None:
    assert FileJournal(path).boot == Path(journal.BOOT_ID).read_text().strip()


def test_a_torn_last_line_is_left_out_and_swallows_nothing(path: str) -> None:
    log = FileJournal(path, "b")
    run(log, "a", "b")
    whole = Path(path).read_bytes()
    last = whole.splitlines(keepends=True)[-1]
    for cut in range(1, len(last)):
        Path(path).write_bytes(whole[:-cut])
        again = FileJournal(path, "b")
        expected = ["", "a", "b"] if cut == 1 else ["", "a"]  # the record is complete even without its newline
        assert [r.step for r in again.entries()] == expected
        again.append(JournalEntry("undo", again.entries()[-1].run, step="next"), durable=True)
        again.close()
        assert [r.step for r in FileJournal(path, "b").entries()] == [*expected, "next"]


@pytest.mark.parametrize("where", [0, 9, 20, 40])
def test_a_line_with_a_flipped_bit_is_no_record(path: str, where: int) -> None:
    log = FileJournal(path, "b")
    run(log, "a", "b")
    lines = Path(path).read_bytes().splitlines(keepends=True)
    lines[1] = lines[1][:where] + bytes([lines[1][where] ^ 1]) + lines[1][where + 1 :]
    Path(path).write_bytes(b"".join(lines))
    assert [r.step for r in FileJournal(path, "b").entries()] == ["", "b"]


@pytest.mark.parametrize("body", [b"", b"\n\n", b"not a journal\n", b"\x00" * 4096, b"00000000 {}\n"])
def test_a_file_that_is_no_journal_has_no_records(path: str, body: bytes) -> None:
    Path(path).parent.mkdir()
    Path(path).write_bytes(body)
    assert list(FileJournal(path, "b").entries()) == []


@pytest.fixture
def small_files() -> Iterator[None]:
    """Limit files to 600 bytes: the next write fails as on a full disk (EFBIG), or is truncated."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (600, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, previous)


@pytest.mark.usefixtures("small_files")
def test_a_full_disk_is_an_error_and_leaves_whole_lines_only(path: str) -> None:
    log = FileJournal(path, "b")
    name = log.new_run()
    written = 0
    fault = None
    while fault is None and written < 100:
        try:
            log.append(JournalEntry("intent", name, step=str(written), text="x" * 40), durable=True)
            written += 1
        except StorageError as error:
            fault = error
    assert fault is not None
    assert fault.next_step
    assert Path(path).read_bytes().endswith(b"\n")
    assert [r.step for r in log.entries()] == [str(n) for n in range(written)]
    assert 0 < written < 100


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "lib").write_text("a file where a folder should be")
    log = FileJournal(str(tmp_path / "lib" / "change-journal.jsonl"), "b")
    with pytest.raises(StorageError):
        log.append(JournalEntry("begin", "r"), durable=True)


def test_a_link_in_its_place_is_not_written_through(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "journal"
    target.write_text("precious")
    link.symlink_to(target)
    run(FileJournal(str(link)), "mig")
    assert target.read_text() == "precious"
    assert not link.is_symlink(), "the target is not a journal: the link was set aside"
    link.unlink()
    target.write_text("")
    link.symlink_to(target)
    with pytest.raises(StorageError, match="symbolic links"):
        run(FileJournal(str(link)), "mig")
    assert target.read_text() == ""


def test_durable_is_on_disk_before_append_returns(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    real = os.fsync

    def fsync(file: int) -> None:
        real(file)
        synced.append(file)

    monkeypatch.setattr(os, "fsync", fsync)
    log = FileJournal(path, "b")
    log.append(JournalEntry("begin", "r"), durable=True)
    assert len(synced) == 3, "the line, the folder of the new file, and the parent of the new folder"
    log.append(JournalEntry("done", "r"), durable=False)
    assert len(synced) == 3
    log.append(JournalEntry("intent", "r"), durable=True)
    assert len(synced) == 4


def test_a_failed_fsync_is_an_error(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # The kernel reports the failure once and drops the data, so the record must not count as written.
    log = FileJournal(path, "b")
    log.append(JournalEntry("begin", "r"), durable=True)
    real = os.fsync

    def broken(file: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(StorageError, match="cannot be written") as caught:
        log.append(JournalEntry("intent", "r", step="lost"), durable=True)
    assert caught.value.next_step
    monkeypatch.setattr(os, "fsync", real)
    log.append(JournalEntry("intent", "r", step="next"), durable=True)


def test_a_failed_fsync_fails_for_every_worker_that_wrote_before_it(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Two workers wait for the fsync of a third one. The fsync that covers all of them fails.
    log = FileJournal(path, "b")
    log.append(JournalEntry("begin", "r"), durable=True)
    entered, go_on, calls = threading.Event(), threading.Event(), list[int]()
    failures: dict[str, Exception | None] = {}

    def fsync(file: int) -> None:
        calls.append(file)
        if len(calls) == 1:
            entered.set()
            assert go_on.wait(20)
        else:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def worker(name: str) -> None:
        try:
            log.append(JournalEntry("intent", "r", step=name), durable=True)
            failures[name] = None
        except StorageError as error:
            failures[name] = error

    monkeypatch.setattr(os, "fsync", fsync)
    workers = [threading.Thread(target=worker, args=(name,)) for name in ("a", "b", "c")]
    workers[0].start()
    assert entered.wait(20)
    for thread in workers[1:]:
        thread.start()
    deadline = time.monotonic() + 20
    while len(read(path)) < 4:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    go_on.set()
    for thread in workers:
        thread.join()
    assert len(calls) == 2, "one fsync serves both"
    assert failures["a"] is None
    assert isinstance(failures["b"], StorageError)
    assert isinstance(failures["c"], StorageError)


def test_kill_9_after_a_durable_append_loses_nothing(path: str) -> None:
    program = (
        "import os, sys\n"
        "from aliquot.hardware.state.journal import FileJournal\n"
        "from aliquot.core.engine.ports import JournalEntry\n"
        "log = FileJournal(sys.argv[1], 'b')\n"
        "log.append(JournalEntry('intent', 'r', step='before the kill'), durable=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program, path], check=False)
    assert ended.returncode == -9
    assert [r.step for r in FileJournal(path, "b").entries()] == ["before the kill"]


def test_workers_append_at_once_without_mixing(path: str) -> None:
    log = FileJournal(path, "b")

    def worker(name: str) -> None:
        for n in range(50):
            log.append(JournalEntry("intent", "r", gpu=name, step=str(n)), durable=False)

    workers = [threading.Thread(target=worker, args=(str(n),)) for n in range(8)]
    for thread in workers:
        thread.start()
    for thread in workers:
        thread.join()
    found = log.entries()
    assert len(found) == 400
    for n in range(8):
        assert [r.step for r in found if r.gpu == str(n)] == [str(s) for s in range(50)]


def test_a_long_journal_keeps_its_last_runs_and_never_the_run_in_the_middle(path: str) -> None:
    log = FileJournal(path, "b", rotate_at=12_000)
    runs = [run(log, *map(str, range(20))) for _ in range(30)]
    assert len(set(runs)) == len(runs)
    found = read(path)
    kept = list(dict.fromkeys(r.run for r in found))
    assert kept == runs[-len(kept) :]
    assert journal.KEEP_WHOLE < len(kept) < len(runs)
    for name in kept:
        assert sum(r.run == name for r in found) == 21
    with_plan = [r.run for r in found if r.change is not None]
    assert with_plan[-1] == runs[-1], "the last run can be resumed"
    assert len(with_plan) < len(kept), "older runs are thinned"
    assert not Path(path + ".new").exists()


def test_a_run_is_recorded_though_another_process_cut_the_journal_down_meanwhile(path: str) -> None:
    # An agent keeps its journal open between changes.
    agent, other = FileJournal(path, "b"), FileJournal(path, "b", rotate_at=3000)
    run(agent, "a")
    first = os.stat(path).st_ino
    while os.stat(path).st_ino == first:
        run(other, *map(str, range(10)))
    last = run(agent, "c")
    assert [r.step for r in last_run(path) if r.run == last] == ["", "c"]


def test_a_run_begins_on_a_line_of_its_own_though_another_process_died_in_the_middle_of_one(path: str) -> None:
    agent = FileJournal(path, "b")
    run(agent, "a")
    with open(path, "ab") as other:
        other.write(b'0123abcd {"kind":"int')
    last = run(agent, "c")
    assert [(r.run, r.kind) for r in last_run(path)] == [(last, "begin"), (last, "intent")]


def test_a_record_says_when_and_a_run_for_whom(path: str) -> None:
    log = FileJournal(path, "b", by="web: ann", clock=lambda: 1_700_000_000.25)
    run(log, "a")
    begin, intent = log.entries()
    assert (begin.at, begin.by) == (1_700_000_000.25, "web: ann")
    assert (intent.at, intent.by) == (1_700_000_000.25, ""), "once in a run is enough"


def test_without_a_word_it_is_the_user_or_who_called_sudo(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 0)
    monkeypatch.setenv("SUDO_USER", "ann")
    assert journal.user() == "ann"
    monkeypatch.delenv("SUDO_USER")
    assert journal.user() == "root"
    monkeypatch.setattr(os, "getuid", lambda: 12345678)
    assert journal.user() == "uid 12345678"


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 20_000), st.booleans()), max_size=12), st.integers(0, 40))
def test_the_last_run_and_what_was_added_are_those_of_the_whole(runs: list[tuple[int, int, bool]], torn: int) -> None:
    # The result does not depend on the length, on the place where the file is truncated, or on the time of the read.
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "change-journal.jsonl")
        log, reported, mark = FileJournal(path, "b"), list[JournalEntry](), JournalPosition()
        for steps, size, number in runs:
            name = log.new_run()
            log.append(JournalEntry("begin", name, text="x" * size), durable=False)
            for n in range(steps):
                log.append(JournalEntry("intent", name, step=str(n)), durable=False)
            if number:
                records, mark, rewritten = read_added(path, mark)
                reported = records if rewritten else reported + records
        log.close()
        if not runs:
            assert last_run(path) == []
            return
        whole = Path(path).read_bytes()
        Path(path).write_bytes(whole[: len(whole) - torn])
        found = read(path)
        assert last_run(path) == [r for r in found if r.run == found[-1].run]
        Path(path).write_bytes(whole)
        records, _, rewritten = read_added(path, mark)
        assert (records if rewritten else reported + records) == read(path)


def test_what_was_added_to_a_file_that_was_cut_down_is_all_of_it(path: str) -> None:
    log = FileJournal(path, "b", rotate_at=2000)
    mark, reported = JournalPosition(), 0
    for n in range(60):
        name = log.new_run()
        log.append(JournalEntry("end", name, text=str(n)), durable=False)
        records, mark, rewritten = read_added(path, mark)
        reported = len(records) if rewritten else reported + len(records)
        assert reported == len(read(path))
        assert records[-1].text == str(n)


def test_a_line_that_is_not_whole_yet_is_reported_when_it_is(path: str) -> None:
    log = FileJournal(path, "b")
    run(log, "a", "b")
    log.close()
    whole = Path(path).read_bytes()
    Path(path).write_bytes(whole[:-5])
    records, mark, rewritten = read_added(path, JournalPosition())
    assert ([r.step for r in records], rewritten) == (["", "a"], True)
    with open(path, "ab") as file:
        file.write(whole[-5:])
    records, mark, rewritten = read_added(path, mark)
    assert ([r.step for r in records], rewritten) == (["b"], False)
    assert read_added(path, mark) == ([], mark, False)


def test_of_a_long_file_the_end_is_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    assert journal_reader._read(str(path), 4) == (b"6789", False)
    assert journal_reader._read(str(path), 10) == (b"0123456789", True)
    assert journal_reader._read(str(path), 11) == (b"0123456789", True)


@pytest.mark.parametrize(("more", "kept"), [(0, False), (1, True)])
def test_it_is_written_again_from_its_limit_on(more: int, kept: bool, tmp_path: Path) -> None:
    path = tmp_path / "journal"
    log = FileJournal(str(path), "b", by="ann")
    for run in (log.new_run(), log.new_run(), log.new_run()):
        log.append(JournalEntry("begin", run, text="x" * 100), durable=False)
        log.append(JournalEntry("end", run, text="done"), durable=False)
    log.close()
    before = path.stat()
    again = FileJournal(str(path), "b", rotate_at=before.st_size + more, by="ann")
    again.append(JournalEntry("begin", again.new_run()), durable=True)
    assert (path.stat().st_ino == before.st_ino) == kept
