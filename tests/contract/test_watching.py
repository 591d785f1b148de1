"""Watching a node over time and over restarts: the record next to the journal, and instances that Aliquot creates
again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aliquot.core.config.select.command_line import adhoc
from aliquot.core.engine.apply import apply
from aliquot.core.engine.ports import JournalEntry as Line
from aliquot.core.model.usage import Usage
from aliquot.core.planner.plan import plan
from aliquot.core.planner.usage_tracking import GAP_S, UsageHistory
from aliquot.hardware.state.journal import FileJournal
from aliquot.hardware.state.journal_follower import MAX_RUNS, RecentRuns
from aliquot.node.connect import connect
from aliquot.node.usage_tracker import FILE, WRITE_S, RecreationJournal, UsageRecord, UsageTracker
from contract.conftest import Machine

Start = Callable[[str], Machine]


class Clock:
    """A wall clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


class Watched:
    """A node, a clock, and polls of the node. ``again`` returns a watcher that has just started."""

    def __init__(self, node: Machine) -> None:
        self.node = node
        self.clock = Clock()
        self.connection = connect(node.name, state_dir=node.state_dir)
        self.again()

    def again(self) -> None:
        self.watch = UsageTracker(self.connection, now=self.clock)

    def poll(self, after_s: float = 45.0) -> tuple[Usage, ...]:
        self.clock.now += after_s
        return self.watch.sample(self.connection, self.connection.backend.read())

    @property
    def path(self) -> str:
        return os.path.join(self.connection.directory, FILE)


@pytest.fixture
def watched(machine: Start, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Watched]]:
    monkeypatch.setenv("ALIQUOT_BACKEND", "direct")
    made: list[Watched] = []

    def start(template: str) -> Watched:
        made.append(Watched(machine(template)))
        return made[-1]

    yield start
    for each in made:
        each.connection.close()


def half(watched: Watched) -> int:
    watched.node.node.set_mode(0, True)
    return watched.node.node.create(0, "3g.40gb", 0)


def test_a_restart_goes_on_from_the_record(watched: Callable[[str], Watched]) -> None:
    w = watched("h100-80gb-hbm3")
    gi = half(w)
    pid = w.node.node.hold(0, gi, memory=9000, busy=0.3)
    w.poll()
    w.node.node.terminate(pid)
    (idle,) = w.poll()
    assert (idle.idle_since, idle.peak_mib, idle.peak_compute) == (w.clock.now, 9000, 0.3)
    w.poll()
    w.watch.save()
    w.again()
    (later,) = w.poll()
    assert (later.idle_since, later.peak_mib, later.watched_since) == (w.clock.now - 90, 9088, idle.watched_since)
    w.watch.save()
    w.node.node.reboot()
    w.connection.close()
    w.connection = connect(w.node.name, state_dir=w.node.state_dir)
    half(w)
    w.again()
    assert w.poll()[0].peak_mib == 0


def test_what_is_lost_makes_it_younger(watched: Callable[[str], Watched]) -> None:
    w = watched("h100-80gb-hbm3")
    half(w)
    w.poll()
    w.watch.save()
    for damage in (b"", b"{", b"[]", b'{"at": "x"}', b'{"at": 1e300, "pieces": []}', bytes(range(256))):
        Path(w.path).write_bytes(damage)
        w.again()
        (found,) = w.poll()
        assert (found.idle_since, found.watched_since) == (w.clock.now, w.clock.now), damage
    Path(w.path).unlink()
    Path(w.path).mkdir()
    w.again()
    assert w.poll()[0].watched_since == w.clock.now
    w.watch.save()  # the write fails, which is not an error
    assert not list(Path(w.path).parent.glob("*.tmp")), "one for each attempt"


def test_a_watcher_that_was_killed_is_continued_where_the_record_is_true(
    watched: Callable[[str], Watched],
) -> None:
    # The record of an idle node is hours old, and a heartbeat proves that it still holds. If it does not, there is no
    # heartbeat.
    w = watched("h100-80gb-hbm3")
    gi = half(w)
    (first,) = w.poll()
    for _ in range(100):
        w.poll()
    w.again()
    (last,) = w.poll()
    assert (last.idle_since, last.watched_since) == (first.idle_since, first.watched_since)
    pid = w.node.node.hold(0, gi)
    w.poll(WRITE_S)
    w.node.node.terminate(pid)
    w.poll(WRITE_S / 4)  # idle again, which is not written yet
    w.again()
    (held,) = w.poll(WRITE_S / 4)
    assert held.idle_since == w.clock.now, "the record contains that it was held"
    w.again()
    assert w.poll(GAP_S + 1)[0].watched_since == w.clock.now


def test_a_heartbeat_is_given_on_a_host_unchanged_since_its_boot(tmp_path: Path) -> None:
    # /run is empty after a boot, and the first apply created the folder.
    record = UsageRecord(str(tmp_path / "lib"), str(tmp_path / "run"))
    assert record.write(UsageHistory("b", 100.0))
    record.mark_alive(200.0)
    assert UsageRecord(str(tmp_path / "lib"), str(tmp_path / "run")).load() == UsageHistory("b", 200.0)


def test_a_sign_of_life_is_not_given_to_the_target_of_a_link(tmp_path: Path) -> None:
    target = tmp_path / "target"
    record = UsageRecord(str(tmp_path / "lib"), str(tmp_path / "run"))
    (tmp_path / "run").mkdir()
    os.symlink(target, record.alive_path)
    record.mark_alive(200.0)
    assert not target.exists()


def test_an_idle_node_is_written_once(watched: Callable[[str], Watched]) -> None:
    w = watched("h100-80gb-hbm3")
    half(w)
    w.poll()
    first = os.stat(w.path)
    for _ in range(40):
        w.poll()
    assert os.stat(w.path).st_ino == first.st_ino
    w.node.node.hold(0, 1)
    w.poll()
    assert os.stat(w.path).st_ino != first.st_ino


def test_what_comes_and_goes_is_not_written_each_time(watched: Callable[[str], Watched]) -> None:
    w = watched("h100-80gb-hbm3")
    gi = half(w)
    inodes = set[int]()
    for n in range(12):
        if n % 2:
            w.node.node.release(0, gi)
        else:
            w.node.node.hold(0, gi)
        w.poll(WRITE_S / 6)
        inodes.add(os.stat(w.path).st_mtime_ns)
    assert len(inodes) <= 3, "two minutes: at most one write a minute"


def test_a_watcher_that_only_listens_writes_nothing(watched: Callable[[str], Watched]) -> None:
    w = watched("h100-80gb-hbm3")
    half(w)
    w.watch = UsageTracker(w.connection, persist=False, now=w.clock)
    w.poll()
    w.watch.save()
    assert not os.path.exists(w.path)


def test_what_aliquot_makes_again_starts_again_and_the_rest_does_not(watched: Callable[[str], Watched]) -> None:
    # Uses the real engine and its journal. An instance at the place of a previous one has its UUID, but is another
    # instance.
    import time

    w = watched("h100-80gb-hbm3")
    gi = half(w)
    stays = w.node.node.create(0, "1g.10gb", 4)
    w.node.node.hold(0, stays, memory=77)
    w.clock.now = time.time() - 60
    before = {u.instance: u for u in w.poll(0)}
    uuids = {c.uuid for i in w.connection.backend.read().gpus[0].instances for c in i.compute_instances}
    for wanted in ("2g.20gb@0,1g.10gb@4", "3g.40gb@0,1g.10gb@4"):
        found = w.connection.backend.read()
        outcome = apply(plan(found, adhoc(("0",), (wanted,), found)), w.connection.execution_context(), lambda _: None)
        assert not outcome.drift
    w.clock.now = time.time() + 1
    after = {u.instance: u for u in w.poll(0)}
    assert uuids == {c.uuid for i in w.connection.backend.read().gpus[0].instances for c in i.compute_instances}
    assert after[gi].watched_since == w.clock.now
    assert after[stays].watched_since == before[stays].watched_since
    assert after[stays].peak_mib == 77


def test_what_the_journal_tells(tmp_path: Path) -> None:
    path = str(tmp_path / "change-journal.jsonl")
    journal, steps = FileJournal(path, "boot"), RecreationJournal(str(tmp_path))
    assert steps.recreated(0) == frozenset()
    for step in ("create gi 3g.20gb 4:4", "create ci 2/0", "destroy gi 7 1g.5gb 0:1", "mixed-size on", "reset"):
        journal.append(Line("intent", "run", gpu="A" if step != "reset" else "B", step=step), durable=False)
    assert steps.recreated(1) == {("A", "4:4"), ("A", "#2"), ("B", "")}
    assert steps.recreated(9e9) == frozenset()
    Path(path).unlink()
    assert steps.recreated(1) == frozenset()


def test_the_record_is_small(watched: Callable[[str], Watched]) -> None:
    w = watched("hgx-h200")
    for gpu in range(8):
        w.node.node.set_mode(gpu, True)
        for _ in range(7):
            w.node.node.create(gpu, "id:19")
    w.poll()
    assert os.path.getsize(w.path) < 20_000
    found = UsageRecord(w.connection.directory, w.connection.run_directory).load()
    assert found == w.watch.history
    assert found.tracked[0].profile == "1g.18gb"


def test_the_newest_changes_are_shown_to_those_who_cannot_read_the_journal(tmp_path: Path) -> None:
    path = str(tmp_path / "change-journal.jsonl")
    journal, newest = FileJournal(path, "boot"), RecentRuns(str(tmp_path))
    assert newest.runs() == ()
    for run in range(MAX_RUNS + 3):
        journal.append(Line("begin", f"r{run}", text="train"), durable=False)
        journal.append(Line("done", f"r{run}", gpu="0000:01:00.0", step="create gi 3g.20gb 4:4"), durable=False)
        assert [p.run for p in newest.runs()] == [f"r{n}" for n in range(run - 1, -1, -1)][:MAX_RUNS], "the last runs"
        journal.append(Line("end", f"r{run}", text="done"), durable=False)
    found = newest.runs()
    assert [p.run for p in found] == [f"r{n}" for n in range(MAX_RUNS + 2, 2, -1)]
    assert found[0].totals == "1 created"
    Path(path).unlink()
    assert newest.runs() is found
