"""The journal of older releases: understood, imported once, and never an obstacle."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec
import pytest

from aliquot.core.engine.ports import JournalEntry
from aliquot.core.engine.recorded_change import change_of
from aliquot.core.model import catalog, encoding
from aliquot.core.planner.plan import plan
from aliquot.foundation import state_store
from aliquot.hardware.state import journal as module
from aliquot.hardware.state.journal import FileJournal, encode
from aliquot.hardware.state.journal_follower import JournalFollower, RecentRuns
from aliquot.hardware.state.journal_reader import JOURNAL, OLD_JOURNAL, last_run, read
from laws.oracle import mig_nodes

A100 = catalog.family("a100-40gb")
INVENTORY = mig_nodes.node(mig_nodes.gpu(A100, [("3g.20gb", 0)], []))
PLAN = plan(INVENTORY, mig_nodes.desired_state(A100, ["2g.10gb"] * 3))


@pytest.fixture(autouse=True)
def _nothing_reported_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_store, "unreadable", {})


def line(**fields: Any) -> bytes:
    body = encoding.encode(fields)
    return b"%08x %s\n" % (crc32(body), body)


def older_run(run: str, *, end: str = "", **begin: Any) -> bytes:
    first: dict[str, Any] = {"kind": "begin", "run": run, "boot": "b", "plan": PLAN, "before": INVENTORY} | begin
    more: list[dict[str, Any]] = [
        {"kind": "intent", "run": run, "gpu": mig_nodes.PCI, "step": "destroy gi 1 3g.20gb 0:4"}
    ]
    more += [{"kind": "end", "run": run, "text": end}] if end else []
    return b"".join(line(**each) for each in [first, *more])


def test_an_interrupted_run_of_an_older_release_is_understood(tmp_path: Path) -> None:
    (tmp_path / OLD_JOURNAL).write_bytes(older_run("r"))
    begin, intent = last_run(str(tmp_path / JOURNAL))
    change = change_of(begin)
    assert change is not None
    assert change.matches_plan(PLAN)
    assert change.explains(INVENTORY)
    assert (begin.run, begin.boot, intent.step) == ("r", "b", "destroy gi 1 3g.20gb 0:4")


def test_the_oldest_have_no_times_and_the_name_in_the_plan(tmp_path: Path) -> None:
    named = {"desired": {"gpus": [], "name": "train"}}
    (tmp_path / OLD_JOURNAL).write_bytes(older_run("r", plan=named))
    begin = read(str(tmp_path / JOURNAL))[0]
    assert (begin.text, begin.at, begin.by, change_of(begin)) == ("train", 0.0, "", None)
    bad: list[Any] = [[], {}, {"desired": 1}, "torn"]
    for nonsense in bad:
        (tmp_path / OLD_JOURNAL).write_bytes(older_run("r", plan=nonsense))
        assert read(str(tmp_path / JOURNAL))[0].text == ""


def test_it_is_taken_over_once_and_stays_beside(tmp_path: Path) -> None:
    path = str(tmp_path / JOURNAL)
    (tmp_path / OLD_JOURNAL).write_bytes(older_run("old", end="done"))
    log = FileJournal(path, "b")
    assert [r.run for r in log.entries()] == ["old"] * 3
    run = log.new_run()
    log.append(JournalEntry("begin", run), durable=True)
    assert sorted(os.listdir(tmp_path)) == [JOURNAL, f"{OLD_JOURNAL}.imported"]
    assert list(dict.fromkeys(r.run for r in read(path))) == ["old", run]
    assert [r.run for r in last_run(path)] == [run]
    log.close()


def test_an_older_release_that_ran_since_counts_last(tmp_path: Path) -> None:
    path = str(tmp_path / JOURNAL)
    Path(path).write_bytes(encode(JournalEntry("begin", "ours")) + encode(JournalEntry("end", "ours", text="done")))
    (tmp_path / OLD_JOURNAL).write_bytes(older_run("old"))
    assert [r.run for r in last_run(path)] == ["old"] * 2
    FileJournal(path, "b").new_run()
    assert [r.run for r in last_run(path)] == ["old"] * 2


@pytest.mark.parametrize("stop", range(3))
def test_a_kill_while_it_is_taken_over_loses_and_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: int
) -> None:
    path = str(tmp_path / JOURNAL)
    Path(path).write_bytes(encode(JournalEntry("begin", "ours")) + b"bad\n")
    (tmp_path / OLD_JOURNAL).write_bytes(older_run("old"))
    left, real = [stop], os.replace

    def killed(old: str, new: str) -> None:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        real(old, new)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            FileJournal(path, "b").new_run()
    FileJournal(path, "b").new_run()
    assert [(r.run, r.kind) for r in read(path)] == [("ours", "begin"), ("old", "begin"), ("old", "intent")]
    assert Path(f"{path}.unreadable").read_bytes() == b"bad\n"


@pytest.mark.parametrize("body", [b"not a journal\n", b"\xff" * 100, b""])
def test_one_without_a_record_is_set_aside(tmp_path: Path, body: bytes) -> None:
    (tmp_path / OLD_JOURNAL).write_bytes(body)
    FileJournal(str(tmp_path / JOURNAL), "b").new_run()
    assert os.listdir(tmp_path) == [f"{OLD_JOURNAL}.unreadable"]


def test_lines_of_an_older_release_that_hold_no_record_are_reported(tmp_path: Path) -> None:
    path, older = str(tmp_path / JOURNAL), tmp_path / OLD_JOURNAL
    older.write_bytes(older_run("r") + older_run("s")[:-5])
    assert {record.run for record in read(path)} == {"r", "s"}
    assert state_store.unreadable == {}, "a kill leaves a truncated last line"
    older.write_bytes(b"\xff\n" + older_run("r"))
    assert {record.run for record in read(path)} == {"r"}
    assert "1 of its lines" in state_store.unreadable[str(older)].why
    FileJournal(path, "b").new_run()
    assert state_store.unreadable == {}


def test_lines_that_another_process_has_set_aside_are_unreadable_no_more(tmp_path: Path) -> None:
    path = str(tmp_path / JOURNAL)
    seen = JournalFollower(str(tmp_path))
    Path(path).write_bytes(b"\xff\n" + encode(JournalEntry("begin", "ours")))
    assert seen.poll() is not None
    Path(path).write_bytes(Path(path).read_bytes() + encode(JournalEntry("end", "ours", text="done")))
    assert seen.poll() is not None
    assert list(state_store.unreadable) == [path]
    (tmp_path / "new").write_bytes(Path(path).read_bytes().split(b"\n", 1)[1])
    os.replace(tmp_path / "new", path)
    news = seen.poll()
    assert news is not None
    assert [record.kind for record in news.entries] == ["begin", "end"]
    assert state_store.unreadable == {}


def test_who_follows_it_sees_both(tmp_path: Path) -> None:
    path, newest = str(tmp_path / JOURNAL), RecentRuns(str(tmp_path))
    (tmp_path / OLD_JOURNAL).write_bytes(older_run("old", end="done"))
    assert [p.run for p in newest.runs()] == ["old"]
    log = FileJournal(path, "b")
    run = log.new_run()
    log.append(JournalEntry("begin", run), durable=True)
    log.append(JournalEntry("end", run, text="done"), durable=True)
    assert [p.run for p in newest.runs()] == [run, "old"]
    with open(tmp_path / OLD_JOURNAL, "wb") as file:
        file.write(older_run("again", end="done"))
    assert [p.run for p in newest.runs()] == ["again", run, "old"]
    log.close()


def test_lines_that_cannot_be_understood_are_reported_and_set_aside(tmp_path: Path) -> None:
    path = str(tmp_path / JOURNAL)
    bad = [line(kind="begin", run=7), b"not a record\n", b"\xff\xfe\n"]
    Path(path).write_bytes(
        encode(JournalEntry("begin", "r")) + b"".join(bad) + encode(JournalEntry("end", "r", text="done"))
    )
    assert [r.kind for r in read(path)] == ["begin", "end"]
    assert [(u.path, u.kind) for u in state_store.unreadable.values()] == [(path, "change-journal")]
    FileJournal(path, "b").new_run()
    assert Path(f"{path}.unreadable").read_bytes() == b"".join(bad)
    assert [r.kind for r in read(path)] == ["begin", "end"]
    assert state_store.unreadable == {}


def test_fields_of_a_newer_version_outlive_a_shortening(tmp_path: Path) -> None:
    path = str(tmp_path / JOURNAL)
    with open(path, "wb") as file:
        for n in range(12):
            file.write(line(kind="begin", run=f"r{n}", change={"x": "y" * 50}, newer=n))
    FileJournal(path, "b", rotate_at=600).new_run()
    kept = [msgspec.json.decode(each.partition(b" ")[2]) for each in Path(path).read_bytes().splitlines()]
    assert [each["newer"] for each in kept] == list(range(12 - len(kept), 12))
    assert [("change" in each) for each in kept[-5:]] == [False] + [True] * module.KEEP_WHOLE


def test_the_first_record_of_a_run_names_format_and_writer(tmp_path: Path) -> None:
    log = FileJournal(str(tmp_path / JOURNAL), "b")
    run = log.new_run()
    log.append(JournalEntry("begin", run), durable=False)
    log.append(JournalEntry("end", run), durable=False)
    begin, end = log.entries()
    assert (begin.format, bool(begin.writer), end.format, end.writer) == (1, True, 0, "")
    log.close()
