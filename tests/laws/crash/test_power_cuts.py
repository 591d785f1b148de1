"""Power cuts at any moment: durable data is there, and nothing is incomplete. The model needs no disk."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from aliquot.core.engine.apply import apply
from aliquot.core.engine.context import ExecutionContext
from aliquot.core.engine.ports import JournalEntry
from aliquot.core.engine.recorded_change import change_of
from aliquot.core.model import catalog
from aliquot.core.model.inventory import Inventory
from aliquot.core.planner.plan import plan
from aliquot.foundation import state_store
from aliquot.foundation.lock import FileLock
from aliquot.foundation.state_store import StateFile
from aliquot.hardware.state.boot_record_file import FILE, OLD_FILE, BootRecordFile
from aliquot.hardware.state.journal import FileJournal
from aliquot.hardware.state.journal_reader import JOURNAL, last_run, read
from aliquot.hardware.state.journal_reader import OLD_JOURNAL as PREVIOUS_JOURNAL
from laws.crash.power_cut import PowerCuts, put
from laws.oracle import mig_nodes
from unit.core.engine.memory import Bench, CountingClock, OneByOne

A100 = catalog.family("a100-40gb")
STATE = "lib/aliquot"
replace = msgspec.structs.replace


class Node:
    """A node in memory whose journal, lock and boot record are files below ``root``."""

    def __init__(self, root: Path, before: Inventory, *, rotate_at: int = 1 << 20) -> None:
        self.root = root
        self.bench = Bench(before)
        folder = root / STATE
        journal = FileJournal(str(folder / JOURNAL), "boot-1", rotate_at=rotate_at, by="ann")
        lock, memory = FileLock(str(root / "run/lock")), self.bench.memory
        self.context = ExecutionContext(
            memory, memory, journal, CountingClock(), lock, OneByOne(), self.bench.hooks, BootRecordFile(str(folder))
        )

    def apply(self, *profiles: str, cuts: PowerCuts | None = None) -> None:
        """Apply a request. Mark each driver call and the end of the apply, which must survive from then on."""
        desired = mig_nodes.desired_state(A100, profiles)
        made = plan(self.bench.memory.inventory, replace(desired, name=",".join(profiles)))

        def before(n: int, what: str) -> None:
            if cuts:
                intents = [r for r in self.context.journal.entries() if r.kind == "intent"]
                cuts.mark(f"intent {intents[-1].run} {intents[-1].step}")

        self.bench.memory.before = before
        outcome = apply(made, self.context, lambda line: None)
        assert outcome.status == "done", outcome
        if cuts:
            cuts.mark(f"done {','.join(profiles)}")


@pytest.fixture(autouse=True)
def _nothing_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_store, "unreadable", {})


def _start() -> Inventory:
    return mig_nodes.node(mig_nodes.gpu(A100, [("3g.20gb", 0)]))


def _check(root: Path, marks: frozenset[str], previous: set[str]) -> None:
    """Open the journal and the boot record that a power cut left, as the next command does."""
    path = str(root / STATE / JOURNAL)
    found = read(path)
    intents = {f"intent {r.run} {r.step}" for r in found if r.kind == "intent"}
    newest = [r for r in last_run(path) if r.kind == "begin"]
    for mark in marks:
        kind, _, rest = mark.partition(" ")
        if kind == "intent":
            run = rest.partition(" ")[0]
            assert mark in intents, mark
            assert any(r.kind == "begin" and r.run == run for r in found), mark
    if newest:
        assert change_of(newest[0]) is not None, "the last run can be resumed"
    done = [mark.partition(" ")[2] for mark in sorted(marks) if mark.startswith("done ")]
    names = {kept.name for kept in BootRecordFile(str(root / STATE)).load()}
    assert len(names) <= 1
    assert names <= previous | {r.text for r in found if r.kind == "begin"}
    if done and not any(r.text not in done for r in found if r.kind == "begin"):
        assert names & set(done), "the applied state is restored after the boot"
    assert state_store.unreadable == {}, "nothing is incomplete"


def _all(cuts: PowerCuts, tmp_path: Path, previous: set[str]) -> int:
    count = 0
    for count, (content, marks) in enumerate(cuts.states(), 1):
        _check(put(content, tmp_path / f"cut-{count}"), marks, previous)
    return count


def test_the_first_apply(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Before it, there are no folders, journal, lock or boot record.
    root = tmp_path / "disk"
    root.mkdir()
    cuts = PowerCuts(root, monkeypatch)
    node = Node(root, _start())
    cuts.start()
    node.apply("2g.10gb", "2g.10gb", cuts=cuts)
    assert _all(cuts, tmp_path, set()) > 50


@pytest.mark.parametrize("rotate_at", [1 << 20, 1000], ids=["appended", "rotated"])
def test_later_ones(rotate_at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The record of the previous run exists until the next run has begun, even if the journal is shortened.
    root = tmp_path / "disk"
    root.mkdir()
    node = Node(root, _start(), rotate_at=rotate_at)
    for _ in range(3):
        node.apply("2g.10gb", "2g.10gb")
        node.apply("3g.20gb")
    before = read(str(root / STATE / JOURNAL))
    cuts = PowerCuts(root, monkeypatch)
    cuts.start()
    for record in last_run(str(root / STATE / JOURNAL)):
        if record.kind == "intent":
            cuts.mark(f"intent {record.run} {record.step}")
    node.apply("1g.5gb", cuts=cuts)
    assert len(read(str(root / STATE / JOURNAL))) > len(before) or rotate_at == 1000
    assert _all(cuts, tmp_path, {"3g.20gb"}) > 30


def test_the_record_of_a_run_before_is_left_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The next run begins on a new line after any truncation, and loses no durable data.
    root = tmp_path / "disk"
    root.mkdir()
    node = Node(root, _start())
    node.apply("2g.10gb")
    cuts = PowerCuts(root, monkeypatch)
    cuts.start()
    node.apply("3g.20gb", cuts=cuts)
    states = list(cuts.states())
    monkeypatch.undo()
    for n, (content, _) in enumerate(states):
        path = str(put(content, tmp_path / f"cut-{n}") / STATE / JOURNAL)
        before, log = read(path), FileJournal(path, "boot-2", by="ann")
        run = log.new_run()
        log.append(JournalEntry("begin", run), durable=True)
        log.close()
        assert [r.run for r in read(path)] == [*(r.run for r in before), run]


def test_a_journal_that_a_killed_process_has_just_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A process was killed before it synced the folder. The next one finds the file and must not rely on its name.

    class KilledError(BaseException):
        pass

    root = tmp_path / "disk"
    (root / STATE).mkdir(parents=True)
    cuts = PowerCuts(root, monkeypatch)
    cuts.start()
    real = os.fsync

    def killed(handle: int) -> None:
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", killed)
        with pytest.raises(KilledError):
            Node(root, _start()).apply("2g.10gb")
    assert os.fsync is real
    assert (root / STATE / JOURNAL).exists()
    Node(root, _start()).apply("2g.10gb", cuts=cuts)
    assert _all(cuts, tmp_path, set()) > 20


def test_what_an_older_release_wrote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Its journal and its boot record are imported: each exists under one of the two names.
    root = tmp_path / "disk"
    node = Node(root, _start())
    root.mkdir()
    node.apply("2g.10gb")
    folder = root / STATE
    kept = msgspec.json.decode((folder / FILE).read_bytes())["content"]
    (folder / OLD_FILE).write_bytes(msgspec.json.encode(kept))
    (folder / PREVIOUS_JOURNAL).write_bytes((folder / JOURNAL).read_bytes())
    (folder / JOURNAL).unlink()
    (folder / FILE).unlink()
    older = [r.run for r in read(str(folder / JOURNAL))]
    assert older
    cuts = PowerCuts(root, monkeypatch)
    cuts.start()
    for record in read(str(folder / JOURNAL)):
        if record.kind == "intent":
            cuts.mark(f"intent {record.run} {record.step}")
    node.apply("3g.20gb")
    for n, (content, marks) in enumerate(cuts.states()):
        path = put(content, tmp_path / f"cut-{n}") / STATE
        found = read(str(path / JOURNAL))
        assert marks <= {f"intent {r.run} {r.step}" for r in found if r.kind == "intent"}
        assert len({k.name for k in BootRecordFile(str(path)).load()}) == 1
        assert state_store.unreadable == {}


def test_lines_that_are_set_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "disk"
    root.mkdir()
    path = root / JOURNAL
    log = FileJournal(str(path), "b", by="ann")
    log.append(JournalEntry("begin", log.new_run()), durable=True)
    log.close()
    bad = b"deadbeef of another version\n"
    path.write_bytes(path.read_bytes() + bad)
    cuts = PowerCuts(root, monkeypatch)
    cuts.start()
    log.append(JournalEntry("begin", log.new_run()), durable=True)
    for content, _ in cuts.states():
        aside = content.get(path.name + state_store.ASIDE, b"")
        assert bad in content[path.name] or aside == bad, content


@pytest.mark.parametrize("durable", [True, False])
def test_a_state_file(durable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The file contains the last value, or the previous one during a save. A file that is not durable may lose both, and
    # is never incomplete.
    root = tmp_path / "disk"
    root.mkdir()
    path = str(root / "state.json")
    StateFile(path, "test", list[int], [0]).save([1] * 20)
    cuts = PowerCuts(root, monkeypatch)
    cuts.start()
    file = StateFile(path, "test", list[int], [0], durable=durable)
    for n in range(2, 4):
        file.save([n] * 20)
        cuts.mark(str(n))
    for n, (content, marks) in enumerate(cuts.states()):
        found = StateFile(str(put(content, tmp_path / f"cut-{n}") / "state.json"), "test", list[int], [0]).load()
        done = max(map(int, marks), default=1)
        if durable:
            assert found in ([done] * 20, [min(done + 1, 3)] * 20), (content, marks)
            assert state_store.unreadable == {}
        else:
            assert found in ([0], [1] * 20, [2] * 20, [3] * 20), (content, marks)


def test_a_state_file_of_an_older_release_in_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Slurm's records had another folder. Imported data does not replace data that was saved since.
    root = tmp_path / "disk"
    (root / "older").mkdir(parents=True)
    (root / "older/state.json").write_bytes(b"[1]")

    def file(folder: Path) -> StateFile[list[int]]:
        return StateFile(str(folder / "new/state.json"), "test", list[int], [0], legacy_name="../older/state.json")

    cuts = PowerCuts(root, monkeypatch)
    cuts.start()
    file(root).save([2])
    cuts.mark("saved")
    file(root).remove()
    cuts.mark("removed")
    for n, (content, marks) in enumerate(cuts.states()):
        found = file(put(content, tmp_path / f"cut-{n}")).load()
        allowed = ([0],) if "removed" in marks else ([2], [0]) if "saved" in marks else ([1], [2])
        assert found in allowed, (content, marks)
