"""Rounds of the Slurm controller against a Slurm and nodes in this process: failures, kills, and recorded state."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from msgspec.structs import replace

from aliquot.core.model.inventory import Inventory
from aliquot.foundation import state_store
from aliquot.slurm.client.errors import RefusedError, SlurmUnavailableError
from aliquot.slurm.client.models import SlurmJob, SlurmNode, SlurmPartition, SlurmReservation
from aliquot.slurm.client.port import Slurm
from aliquot.slurm.controller import history as histories
from aliquot.slurm.controller import poll_hint as poll_hints
from aliquot.slurm.controller.history import SlurmHistory
from aliquot.slurm.controller.loop import SlurmController, revision
from aliquot.slurm.controller.ports import ControllerPorts
from aliquot.slurm.controller.remote_nodes import (
    RemoteChangeOutcome,
    RemoteNodeFacts,
    UnreachableError,
    command,
    sentence,
)
from aliquot.slurm.controller.settings import ManagedNode, PartitionRules
from support.slurmtoy import Toy, toy


class AtOnce(Executor):
    """Runs a task before it returns."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except UnreachableError as error:
            done.set_exception(error)
        return done


class Never(AtOnce):
    """Completes observations immediately, and changes when ``waiting`` does."""

    def __init__(self, waiting: Future[RemoteChangeOutcome]) -> None:
        self.waiting = waiting

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        return super().submit(fn, *args) if len(args) == 1 else self.waiting


class ToySlurm:
    """The controller's port to Slurm, answered by the toy cluster. With ``away`` it does not answer, ``away_from`` is a
    node that it lacks now.
    """

    through = "toy"

    def __init__(self, cluster: Toy) -> None:
        self.cluster = cluster
        self.unavailable = False
        self.unavailable_node = ""
        self.places: dict[str, str] = {}
        self.actions: list[str] = []
        self.refuses = ""

    def nodes(self) -> tuple[SlurmNode, ...]:
        if self.unavailable:
            raise SlurmUnavailableError("slurmctld does not answer")
        self.cluster.schedule()
        places = [SlurmNode(name=n, states=frozenset({"FUTURE", "DRAIN"})) for n in self.places]
        return (*(self.cluster.node(n) for n in self.cluster.nodes if n != self.unavailable_node), *places)

    def node(self, name: str) -> SlurmNode:
        return self.cluster.node(name)

    def queue(self, *, details: bool = True) -> tuple[SlurmJob, ...]:
        return self.cluster.slurm_jobs()

    def partitions(self) -> tuple[SlurmPartition, ...]:
        return (SlurmPartition("all"),)

    def reservations(self) -> tuple[SlurmReservation, ...]:
        return ()

    def create(self, line: str) -> None:
        self._act(f"create {line.split()[0]}")

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *words: self._act(" ".join([name, *map(str, words)]))

    def _act(self, text: str) -> None:
        if self.refuses and text.startswith(self.refuses):
            raise RefusedError("MaxNodeCount is reached", next_step="raise MaxNodeCount")
        self.actions.append(text)


class ToyHosts:
    """The nodes. ``outcomes`` are the results of the next changes. Later ones succeed."""

    def __init__(self, cluster: Toy) -> None:
        self.cluster = cluster
        self.asked = 0
        self.silent = False
        self.unfinished = False
        self.outcomes: list[RemoteChangeOutcome] = []
        self.applied: list[tuple[str, Mapping[str, object], tuple[str, ...]]] = []
        self.before: list[SlurmHistory] = []
        self.written: list[SlurmHistory] = []

    def facts(self, host: ManagedNode) -> RemoteNodeFacts:
        self.asked += 1
        if self.silent:
            raise UnreachableError(host.name, "no answer in 60 s")
        return RemoteNodeFacts(self.cluster.inventory(host.name), (), self.unfinished)

    def apply(
        self, host: ManagedNode, request: Mapping[str, object], words: Sequence[str], bound_s: float
    ) -> RemoteChangeOutcome:
        self.before.append(self.written[-1])
        self.applied.append((host.name, request, tuple(words)))
        return self.outcomes.pop(0) if self.outcomes else RemoteChangeOutcome(0, "done")

    def finish(self, host: ManagedNode, bound_s: float) -> RemoteChangeOutcome:
        self.unfinished = False
        self.applied.append((host.name, {}, ("--continue",)))
        return RemoteChangeOutcome(0, "done")


class Bench:
    def __init__(self, cluster: Toy, *, places: bool = False) -> None:
        self.cluster = cluster
        self.slurm = ToySlurm(cluster)
        self.hosts = ToyHosts(cluster)
        self.messages: list[str] = []
        settings = replace(cluster.settings, placeholders=places, style="profile")
        ports = ControllerPorts(cast(Slurm, self.slurm), self.hosts, self, AtOnce(), self.messages.append)
        self.controller = SlurmController(settings, ports, SlurmHistory(), self.hosts.written.append)

    def now(self) -> float:
        return self.cluster.now

    def sleep(self, seconds: float) -> None:
        self.cluster.now += seconds


def test_a_change_is_on_disk_before_it_begins_and_says_every_place() -> None:
    bench = Bench(toy("7g.40gb"))
    bench.cluster.submit("3g.20gb", count=2)
    bench.controller.round()
    ((name, request, words),) = bench.hosts.applied
    assert name == "n0"
    assert request["configs"] == {"on-demand": [{"gpus": {"pci": ["0000:00:00.0"]}, "mig": ["3g.20gb@0", "3g.20gb@4"]}]}
    assert words[:2] == ("--jobs", "refuse")
    assert [c.node_name for c in bench.hosts.before[0].changes] == ["n0"]


def test_while_a_change_is_under_way_its_record_is_left() -> None:
    bench = Bench(toy("7g.40gb"))
    bench.cluster.submit("3g.20gb")
    bench.hosts.apply = lambda *_: RemoteChangeOutcome(0, "done")  # type: ignore[method-assign]
    waiting: Future[RemoteChangeOutcome] = Future()
    bench.controller._ports = replace(bench.controller._ports, threads=Never(waiting))
    bench.controller.round()
    decision = bench.controller.round()
    assert not decision.repartitions
    assert bench.controller.observe().state.node_states[0].shut == "a change of it is in progress"
    waiting.set_result(RemoteChangeOutcome(0, "done"))
    bench.controller.collect()
    assert not bench.controller.working


def slow(bench: Bench) -> Future[RemoteChangeOutcome]:
    """Make changes last until the returned future has a result."""
    ends: Future[RemoteChangeOutcome] = Future()
    bench.controller._ports = replace(bench.controller._ports, threads=Never(ends))
    return ends


def test_while_a_record_is_cut_for_a_job_that_is_reported_and_no_second_one_is_cut() -> None:
    bench = Bench(toy("7g.40gb", "7g.40gb"))
    bench.cluster.submit("3g.20gb")
    ends = slow(bench)
    assert [r.node_name for r in bench.controller.round().repartitions] == ["n0"]
    for _ in range(3):
        bench.cluster.now += 60
        decision = bench.controller.round()
        assert not decision.repartitions
        assert decision.verdicts[0].sentence == "n0 is being repartitioned for it"
    assert [line for line in bench.messages if line.startswith("job 1: ")][1:] == [
        "job 1: repartitioning: n0 is being repartitioned for it"
    ]
    ends.set_result(RemoteChangeOutcome(40, "the driver refused; undone"))
    assert [r.node_name for r in bench.controller.round().repartitions] == ["n1"]


def test_what_a_partition_keeps_is_not_cut_while_another_of_its_records_is_about_to_have_others() -> None:
    # Until the change is over, Slurm still reports the previous counts: they are no reason to give up the rest.
    bench = Bench(toy("1g.5gb*7", "1g.5gb*7", partitions={"all": PartitionRules(keep={"1g.5gb": 7})}))
    first = bench.cluster.submit("7g.40gb")
    ends = slow(bench)
    assert [r.node_name for r in bench.controller.round().repartitions] == ["n0"]
    first.done = True  # cancelled: no job waits for a repartition any more
    bench.cluster.submit("7g.40gb")
    decision = bench.controller.round()
    assert not decision.repartitions
    assert "n1: n0 is being repartitioned, and the partition has keep or most" in decision.verdicts[0].why
    bench.slurm.unavailable_node = "n0"  # a dynamic node is missing from Slurm for a while
    assert not bench.controller.round().repartitions
    bench.slurm.unavailable_node = ""
    ends.set_result(RemoteChangeOutcome(40, "the driver refused; undone"))
    assert [r.node_name for r in bench.controller.round().repartitions] == ["n1"], (
        "because one of the two still has them"
    )


def test_a_job_of_several_nodes_waits_for_as_many() -> None:
    bench = Bench(toy("7g.40gb", "7g.40gb", "7g.40gb"))
    bench.cluster.submit("3g.20gb", nodes=2)
    slow(bench)
    assert len(bench.controller.round().repartitions) == 2
    decision = bench.controller.round()
    assert not decision.repartitions
    assert decision.verdicts[0].sentence == "n0, n1 are being repartitioned for it"


def test_a_controller_that_is_started_again_knows_for_whom_a_record_is_cut() -> None:
    bench = Bench(toy("7g.40gb", "7g.40gb"))
    bench.cluster.submit("3g.20gb")
    bench.controller.history = SlurmHistory().with_change(bench.cluster.now - 60, "n0", (1,))
    bench.hosts.unfinished = True
    slow(bench)
    assert (
        bench.controller.decide(bench.controller.observe()).verdicts[0].sentence == "n0 is being repartitioned for it"
    )
    bench.controller.history = SlurmHistory().with_change(bench.cluster.now - 6000, "n0", (1,))
    assert bench.controller.decide(bench.controller.observe()).verdicts[0].state == "waits", "not ours: too long ago"


def test_what_slurm_shows_of_a_change_reads_as_a_sentence() -> None:
    bench = Bench(toy("1g.5gb*7"))
    bench.cluster.submit("3g.20gb")
    bench.controller.round()
    ((_, _, words),) = bench.hosts.applied
    assert f"aliquot: changing to {words[3]}" == "aliquot: changing to a layout for job 1"
    assert revision((1, 2)) == "a layout for job 1, 2"
    assert revision(range(1000, 1100)).endswith("1011 and more")


def test_a_change_that_fails_is_reported_and_tried_again_later() -> None:
    bench = Bench(toy("7g.40gb"))
    bench.cluster.submit("3g.20gb")
    bench.hosts.outcomes = [RemoteChangeOutcome(40, "the driver refused; undone")]
    bench.controller.round()
    bench.controller.round()
    assert "n0 could not be changed: the driver refused; undone" in bench.messages
    assert len(bench.hosts.applied) == 1
    bench.cluster.now += 31
    bench.controller.round()
    assert len(bench.hosts.applied) == 2
    bench.controller.round()
    assert bench.controller.history.failures == {}


def test_a_change_that_lost_a_race_is_tried_again_at_once_but_not_for_ever() -> None:
    bench = Bench(toy("7g.40gb"))
    bench.cluster.submit("3g.20gb")
    lost = RemoteChangeOutcome(20, "jobs have the slots", lost_race=True)
    bench.hosts.outcomes = [lost] * 4
    for tries in (1, 2, 3, 4):
        bench.controller.round()
        assert len(bench.hosts.applied) == tries
    bench.controller.round()
    assert len(bench.hosts.applied) == 4, "a fourth loss is a failure, with its pause"
    assert bench.controller.history.failures["n0"].why == "jobs have the slots"
    assert "n0: jobs were faster than the change (jobs have the slots); looking again" in bench.messages


def test_a_board_stays_one_whatever_the_settings_say() -> None:
    bench = Bench(toy("7g.40gb"))
    bench.cluster.submit("3g.20gb")
    facts = bench.hosts.facts
    bench.hosts.facts = lambda host: replace(facts(host), slots=True)  # type: ignore[method-assign]
    bench.controller.round()
    ((_, _, words),) = bench.hosts.applied
    assert "--slots" in words


def test_a_node_that_says_nothing_is_left_and_asked_again_later() -> None:
    bench = Bench(toy("7g.40gb"))
    bench.hosts.silent = True
    bench.cluster.submit("3g.20gb")
    bench.controller.round()
    bench.controller.round()
    assert bench.hosts.asked == 1
    assert bench.messages.count("node n0: no answer in 60 s") == 1
    assert not bench.hosts.applied
    bench.hosts.silent = False
    bench.cluster.now += 31
    bench.controller.round()
    assert bench.hosts.applied


def test_what_a_job_had_in_use_is_asked_for_again_when_it_has_ended() -> None:
    bench = Bench(toy("7g.40gb"))
    bench.cluster.submit("7g.40gb", seconds=10)
    free = bench.cluster.inventory
    bench.cluster.inventory = lambda name: _held(free(name))  # type: ignore[method-assign]
    bench.cluster.submit("3g.20gb", priority=1)
    bench.controller.round()
    assert not bench.hosts.applied
    bench.cluster.inventory = free  # type: ignore[method-assign]
    bench.cluster.now += 11
    bench.controller.round()
    assert bench.hosts.applied, "the job's holder ended with the job"


def _held(inventory: Inventory) -> Inventory:
    gpus = [replace(g, instances=tuple(replace(i, held=True) for i in g.instances)) for g in inventory.gpus]
    return replace(inventory, gpus=tuple(gpus))


def test_what_was_cut_off_is_finished_first() -> None:
    bench = Bench(toy("7g.40gb"))
    bench.hosts.unfinished = True
    bench.cluster.submit("3g.20gb")
    bench.controller.round()
    assert [words for _, _, words in bench.hosts.applied] == [("--continue",)]
    bench.controller.round()
    assert bench.hosts.applied[-1][2][0] == "--jobs"


def test_where_slurm_is_unavailable_nothing_is_done() -> None:
    bench = Bench(toy("7g.40gb"))
    bench.slurm.unavailable = True
    with pytest.raises(SlurmUnavailableError):
        bench.controller.round()
    assert not bench.hosts.applied


def test_a_placeholder_that_slurm_refuses_stops_nothing() -> None:
    bench = Bench(toy("7g.40gb"), places=True)
    bench.slurm.refuses = "create"
    bench.cluster.submit("3g.20gb")
    bench.controller.round()
    assert any("MaxNodeCount is reached; next: raise MaxNodeCount" in line for line in bench.messages)
    assert bench.hosts.applied


def test_no_placeholder_goes_while_a_node_says_nothing() -> None:
    bench = Bench(toy("7g.40gb"), places=True)
    bench.slurm.places = {"aliquot-layouts-old-0": ""}
    bench.hosts.silent = True
    bench.controller.round()
    assert not [a for a in bench.slurm.actions if a.startswith("delete")]
    bench.hosts.silent = False
    bench.cluster.now += 31
    bench.controller.round()
    assert "delete aliquot-layouts-old-0" in bench.slurm.actions


def test_a_history_outlives_bad_bytes_and_older_releases(tmp_path: Path) -> None:
    path, file = str(tmp_path / "deep/history.json"), tmp_path / "deep/history-state.json"
    assert histories.read(path) == (SlurmHistory(), "")
    kept = SlurmHistory().with_change(5.0, "n0", (1,)).with_failure(6.0, "n1", "why").with_decision(7.0, [4], 60.0)
    file.parent.mkdir()
    (tmp_path / "deep/history.json").write_bytes(msgspec.json.encode(kept))
    assert histories.read(path) == (kept, "")
    histories.write(path, kept.with_change(9.0, "n2", ()))
    assert histories.read(path) == (kept.with_change(9.0, "n2", ()), "")
    for body in (b"{", b"\xff", b'{"format":9}'):
        state_store.unreadable.clear()
        file.write_bytes(body)
        found, failure = histories.read(path)
        assert found == kept
        assert "cannot be understood" in failure
    (tmp_path / "deep/history-state.json.previous").unlink()
    found, failure = histories.read(path)
    assert found == SlurmHistory()
    assert "limits count from now on" in failure
    histories.write(path, kept)
    assert histories.read(path) == (kept, "")


def test_words_for_a_shell_on_the_other_side_are_quoted() -> None:
    own = ["slurm", "apply", "--node-conf", "CPUs=2 Feature=mig"]
    assert command(("ssh", "h"), own) == ["ssh", "h", "aliquot slurm apply --node-conf 'CPUs=2 Feature=mig'"]
    assert command(("kubectl", "exec", "p", "--"), own) == ["kubectl", "exec", "p", "--", "aliquot", *own]
    assert command((), own)[1:3] == ["-m", "aliquot"]


def test_how_a_change_ended_in_a_line() -> None:
    error = 'draining n1\n{"code": "NODE_BUSY", "message": "jobs are on it", "details": ["job 7"]}\n'
    assert sentence(20, "", error) == "jobs are on it; job 7"
    assert sentence(40, '{"status": "undone", "why": "the driver refused"}', "note") == "the driver refused"
    assert sentence(255, "", "ssh: connect to host h: No route to host\n") == "ssh: connect to host h: No route to host"
    assert sentence(7, "", "") == "exit status 7"


def test_between_two_looks_a_job_that_comes_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poll_hints, "HINT_S", 0.01)
    monkeypatch.setattr(poll_hints, "IDLE_HINT_S", 0.01)
    monkeypatch.setattr(poll_hints, "SHARE", 0)
    bench = Bench(toy("7g.40gb"))
    bench.controller.round()
    bench.cluster.submit("3g.20gb")
    began = time.monotonic()
    bench.controller.wait(threading.Event(), 10.0, poll_hints=True)
    assert time.monotonic() - began < 9
    bench.controller.wait(threading.Event(), 0.2)  # without early polls, Slurm is not queried
    (repartition,) = bench.controller.round().repartitions
    assert repartition.node_name == "n0"


def test_a_poll_that_slurm_does_not_answer_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poll_hints, "HINT_S", 0.01)
    monkeypatch.setattr(poll_hints, "SHARE", 0)
    bench = Bench(toy("7g.40gb"))
    bench.controller.round()

    def unavailable(*, details: bool = True) -> tuple[SlurmJob, ...]:
        raise SlurmUnavailableError("slurmctld does not answer")

    monkeypatch.setattr(bench.slurm, "queue", unavailable)
    with pytest.raises(SlurmUnavailableError):
        bench.controller.wait(threading.Event(), 10.0, poll_hints=True)


def test_sixteen_jobs_in_one_and_a_half_seconds_are_one_decision() -> None:
    bench = Bench(toy("7g.40gb", "7g.40gb"))
    coming = iter(range(16))
    schedule = bench.cluster.schedule

    def arrive() -> None:
        """Submit a job for each tenth of a second that has passed."""
        while len(bench.cluster.jobs) < min(16, 1 + round(10 * (bench.cluster.now - 1000))) and next(coming, 99) < 16:
            bench.cluster.submit("1g.5gb")
        schedule()

    bench.cluster.schedule = arrive  # type: ignore[method-assign]
    queue = bench.slurm.queue

    def listed(*, details: bool = True) -> tuple[SlurmJob, ...]:
        arrive()
        return queue(details=details)

    bench.slurm.queue = listed  # type: ignore[method-assign]
    decision = bench.controller.round()
    assert len(bench.cluster.jobs) == 16
    assert 2.5 <= bench.cluster.now - 1000 <= 3.0, "a second after the last one"
    assert len(bench.hosts.applied) == len(decision.repartitions) > 0
    assert len(decision.verdicts) == 16


def test_a_hook_wakes_an_idle_controller_and_nothing_else_does_for_30_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poll_hints, "HINT_S", 0.01)
    bench = Bench(toy("7g.40gb"))
    calls = [False, True]
    bench.controller._ports = replace(bench.controller._ports, wake=Hook(calls))
    bench.controller.round()
    bench.controller._poll_hint._announced = True
    asked: list[bool] = []
    queue = bench.slurm.queue

    def counted(*, details: bool = True) -> tuple[SlurmJob, ...]:
        asked.append(details)
        return queue()

    monkeypatch.setattr(bench.slurm, "queue", counted)
    bench.cluster.submit("3g.20gb")
    began = time.monotonic()
    bench.controller.wait(threading.Event(), 5.0, poll_hints=True)
    assert time.monotonic() - began < 4
    assert asked == [False], "one poll, after the hook called"


class Hook:
    def __init__(self, calls: list[bool]) -> None:
        self.calls = calls

    def touched(self) -> bool:
        return self.calls.pop(0) if self.calls else False
