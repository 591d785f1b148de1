"""Agent loop between observations: events while it observes, waits, or hits an internal error; the record on disk."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from aliquot.core.config.settings import AgentSettings
from aliquot.core.model.facts import Facts
from aliquot.core.model.inventory import Inventory
from aliquot.errors import StorageError
from aliquot.foundation.lock import FileLock
from aliquot.hardware.systemd.units import StoppedServices, StoppedUnit
from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.client.objects import Node, ObjectMeta
from aliquot.kubernetes.client.watch import FullList, ObjectChanged
from aliquot.kubernetes.gpu import gpu_operands as operands
from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.gpu.config_label import ConfigFailure
from aliquot.kubernetes.gpu.gpu_operands import NodeMarks, NodePatch
from aliquot.kubernetes.gpu.node_status import AgentStatus
from aliquot.kubernetes.gpu.pause_owner import PauseOwner
from aliquot.kubernetes.label_agent.agent import decision, steps
from aliquot.kubernetes.label_agent.agent import main as agent_main
from aliquot.kubernetes.label_agent.agent import observer as observe
from aliquot.kubernetes.label_agent.agent.agent_node import AgentNode
from aliquot.kubernetes.label_agent.agent.executor import StepExecutor
from aliquot.kubernetes.label_agent.agent.host_services import HostServices
from aliquot.kubernetes.label_agent.agent.loop import LabelAgentLoop
from aliquot.kubernetes.label_agent.agent.metrics import LabelAgentMetrics
from aliquot.kubernetes.label_agent.agent.node_informer import NodeInformer
from aliquot.kubernetes.label_agent.agent.observation import AgentMemory, Durable, Observation, RebootMark
from aliquot.kubernetes.label_agent.agent.observer import Observer
from aliquot.kubernetes.label_agent.agent.settings import AgentSetup
from aliquot.kubernetes.label_agent.agent.state_file import FILE, AgentStateFile
from aliquot.kubernetes.node_agent.agent_loop import AgentLoop
from aliquot.kubernetes.node_agent.gpu_worker import GpuWorker
from aliquot.kubernetes.node_agent.own_node import OwnNode
from aliquot.kubernetes.node_agent.pod_holders import PodDeviceUse
from support.agent_observations import make_observation, node
from support.factory import with_instances

REQUEST = "all-1g.5gb"


class Eyes:
    """Observes the informer, and lets an event happen before it finishes."""

    def __init__(self, informer: NodeInformer, meanwhile: Callable[[], None]) -> None:
        self.informer, self.meanwhile = informer, meanwhile
        self.current = AgentSettings()

    async def observe(self, memory: AgentMemory) -> Observation:
        marks = self.informer.marks
        o = make_observation(marks.labels.get(names.CONFIG_LABEL), marks=marks)
        await asyncio.sleep(0)
        self.meanwhile()
        return o

    def settings(self) -> tuple[AgentSettings, None, tuple[str, ...]]:
        return self.current, None, ()

    def digest_of(self, o: Observation) -> str:
        return make_observation(self.informer.marks.labels.get(names.CONFIG_LABEL), marks=self.informer.marks).digest


class Hands:
    """Records whether a step began after its wait was over."""

    def __init__(self, wrong: Exception | None = None) -> None:
        self.superseded = asyncio.Event()
        self.began: list[tuple[steps.Step, bool]] = []
        self.wrong = wrong
        self.failures: list[ConfigFailure] = []

    async def execute(self, step: steps.Step, o: Observation, m: AgentMemory) -> AgentMemory:
        self.began.append((step, self.superseded.is_set()))
        if self.wrong is not None:
            raise self.wrong
        return m

    def record_failure(self, failure: ConfigFailure, o: Observation, m: AgentMemory) -> AgentMemory:
        self.failures.append(failure)
        return m


def object_of(**labels: str) -> Node:
    return Node(metadata=ObjectMeta(name="gpu-1", uid="u", labels=labels))


def paused() -> Node:
    """Return a node whose operands are paused for the request."""
    o = make_observation(REQUEST)
    patch = operands.pause(o.marks, operands.OPERANDS, requested=o.digest)
    labels = {**o.marks.labels, **patch.labels, names.CONFIG_LABEL: REQUEST, names.STATE_LABEL: "pending"}
    annotations = {k: v for k, v in patch.annotations.items() if v is not None}
    return Node(
        metadata=ObjectMeta(
            name="gpu-1", uid="u", labels=msgspec.convert(labels, dict[str, str]), annotations=annotations
        )
    )


def loop_over(first: Node, meanwhile: Callable[[NodeInformer], None], hands: Hands) -> LabelAgentLoop:
    rounds = AgentLoop()
    informer = NodeInformer(cast(Api, None), OwnNode("gpu-1"), "ns", rounds.wake)
    informer.nodes.apply(FullList((first,)))
    rounds._woken.clear()
    eyes = cast(Observer, Eyes(informer, lambda: meanwhile(informer)))
    return LabelAgentLoop(rounds, informer, eyes, cast(StepExecutor, hands), LabelAgentMetrics("gpu-1"))


def relabelled(first: Node, **labels: str) -> Node:
    return msgspec.structs.replace(
        first, metadata=msgspec.structs.replace(first.metadata, labels={**first.metadata.labels, **labels})
    )


def annotated(first: Node, changes: Mapping[str, str | None]) -> Node:
    found = {k: v for k, v in {**first.metadata.annotations, **changes}.items() if v is not None}
    return msgspec.structs.replace(first, metadata=msgspec.structs.replace(first.metadata, annotations=found))


@pytest.mark.parametrize(
    ("labels", "over"),
    [
        ({names.CONFIG_LABEL: "all-disabled"}, True),
        ({f"{names.DEPLOY_PREFIX}device-plugin": "true"}, True),
        ({"somebody": "else"}, False),
    ],
    ids=["another wish", "the pause is undone", "nothing of ours"],
)
def test_what_happens_during_a_look_ends_the_wait_that_follows(labels: dict[str, str], over: bool) -> None:
    # The change comes after the labels were read, but before the loop knows what it will wait for: then it observes
    # again instead.
    first, hands = paused(), Hands()

    async def play() -> None:
        await loop_over(
            first, lambda informer: informer.nodes.apply(ObjectChanged(relabelled(first, **labels))), hands
        ).cycle()

    asyncio.run(play())
    assert [type(step) for step, _ in hands.began] == ([] if over else [steps.AwaitOperands])


@pytest.mark.parametrize(
    ("asked", "late"),
    [
        ({names.STATUS_ANNOTATION: None}, True),
        ({names.HOLDERS_ANNOTATION: "force"}, True),
        ({"somebody": "else"}, False),
    ],
    ids=["the same again", "another policy", "nothing of ours"],
)
def test_what_is_asked_after_a_look_is_not_answered_by_it(asked: dict[str, str | None], late: bool) -> None:
    previous = AgentStatus("failed", "ApplyFailed", "boom", REQUEST)
    first = annotated(object_of(**{names.CONFIG_LABEL: REQUEST}), {names.STATUS_ANNOTATION: previous.document()})
    written: list[str] = []

    class Server:
        async def get(self, kind: object, name: str) -> Node:
            return annotated(first, asked)

        async def patch(self, kind: object, name: str, body: object) -> Node:
            written.append(name)
            return first

        async def create(self, kind: object, body: object, namespace: str) -> None:
            written.append("event")

    async def play() -> None:
        informer = NodeInformer(cast(Api, Server()), OwnNode("gpu-1"), "ns", lambda: None)
        informer.nodes.apply(FullList((first,)))
        none: Any = None
        actor = StepExecutor(AgentNode(informer, none, none), none, none, LabelAgentMetrics("gpu-1"))
        o = make_observation(REQUEST, marks=informer.marks)
        await actor.execute(steps.ReportStatus(AgentStatus("failed", "Held", "held", REQUEST)), o, AgentMemory())

    asyncio.run(play())
    assert written == ([] if late else ["gpu-1", "event"])


def test_a_pause_that_is_undone_ends_the_wait_that_is_on() -> None:
    first, hands = paused(), Hands()

    async def play() -> None:
        loop = loop_over(first, lambda informer: None, hands)
        await loop.cycle()
        assert not hands.superseded.is_set()
        loop.informer.nodes.apply(ObjectChanged(relabelled(first, somebody="else")))
        assert not hands.superseded.is_set()
        loop.informer.nodes.apply(ObjectChanged(relabelled(first, **{f"{names.DEPLOY_PREFIX}device-plugin": "true"})))
        assert hands.superseded.is_set()

    asyncio.run(play())


def test_a_key_error_of_our_own_is_a_defect_and_not_a_node_that_was_not_read() -> None:
    first, hands = paused(), Hands(KeyError("oops"))

    async def play() -> None:
        loop = loop_over(first, lambda informer: None, hands)
        running = asyncio.create_task(loop.run())
        while not hands.failures:
            await asyncio.sleep(0.01)
        loop.loop.stop()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(asyncio.wait_for(play(), 5))
    assert hands.failures[0].reason == "InternalFault"


class Still:
    """GPUs that answer."""

    def __init__(self, inventory: Inventory) -> None:
        self.inventory = inventory
        self.unhealthy: frozenset[str] = frozenset()

    async def read(self) -> tuple[Inventory, Facts]:
        return self.inventory, Facts("580.1", (13, 0), ())


def observer(tmp_path: Path, first: Node) -> Observer:
    informer = NodeInformer(cast(Api, None), OwnNode("gpu-1"), "ns", lambda: None)
    informer.nodes.apply(FullList((first,)))
    place = AgentSetup("gpu-1")
    informer.follow = lambda config_maps: None  # type: ignore[method-assign]
    for name in (names.SETTINGS_MAP, names.EFFECTIVE_MAP, names.DEFAULT_CONFIG_MAP):
        informer.followed_maps[name] = informer._config_map_informer(name)
        informer.followed_maps[name].apply(FullList(()))

    async def boot() -> str:
        return "boot-1"

    parts = AgentNode(informer, cast(GpuWorker, Still(node())), AgentStateFile(str(tmp_path)))
    return Observer(parts, place, None, boot)


def test_a_defect_in_reading_a_request_gives_back_what_is_paused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("oops")

    monkeypatch.setattr(observe, "predict", broken)
    o = asyncio.run(observer(tmp_path, paused()).observe(AgentMemory()))
    assert o.failure is not None
    assert o.failure.reason == "InternalFault"
    step = decision.decide(o, AgentMemory(published=o.key))
    assert isinstance(step, steps.Restore)
    assert step.status is not None
    assert step.status.state == "failed"


class TestTheRecord:
    mark = Durable(reboot=RebootMark("d", "b", 1.0))

    def test_what_is_done_is_forgotten_even_where_the_disk_does_not_take_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(file: int) -> None:
            raise OSError(28, "No space left on device")

        record = AgentStateFile(str(tmp_path))
        record.write(self.mark)
        with monkeypatch.context() as disk:
            disk.setattr(os, "fsync", full)
            with pytest.raises(StorageError, match=FILE):
                record.write(Durable())
            assert record.value == self.mark, "data that must be on disk first does not count as written"
            record.forget(Durable())
            assert record.value == Durable()
            assert AgentStateFile(str(tmp_path)).value == self.mark
        record.forget(Durable())
        assert AgentStateFile(str(tmp_path)).value == Durable()

    @pytest.mark.parametrize("body", [b"{torn", b"\xff", b'{"reboot": 7}'])
    def test_one_that_cannot_be_understood_is_set_aside(self, tmp_path: Path, body: bytes) -> None:
        (tmp_path / FILE).write_bytes(body)
        record = AgentStateFile(str(tmp_path))
        assert record.error is None
        assert record.value == Durable()
        record.write(self.mark)
        assert AgentStateFile(str(tmp_path)).value == self.mark
        assert (tmp_path / f"{FILE}.unreadable").read_bytes() == body

    def test_one_that_the_disk_does_not_give_is_not_written_over(self, tmp_path: Path) -> None:
        (tmp_path / FILE).mkdir()
        record = AgentStateFile(str(tmp_path))
        assert record.error is not None
        with pytest.raises(StorageError, match="cannot be read"):
            record.write(self.mark)
        (tmp_path / FILE).rmdir()
        record.refresh()
        assert record.error is None
        record.write(self.mark)
        assert AgentStateFile(str(tmp_path)).value == self.mark


def test_a_foreign_node_still_gets_back_what_we_paused() -> None:
    # The label goes to another manager while our pause is on. Aliquot does not undo pauses of other owners.
    ours = make_observation(REQUEST, marks=operands.NodeMarks(paused().metadata.labels, paused().metadata.annotations))
    ours = msgspec.structs.replace(ours, settings=msgspec.structs.replace(ours.settings, manage=False))
    assert decision.decide(ours, AgentMemory()) == steps.Restore(None)
    theirs = msgspec.structs.replace(ours, marks=operands.NodeMarks(ours.marks.labels, {}))
    assert isinstance(decision.decide(theirs, AgentMemory()), steps.Publish)


@pytest.mark.parametrize("busy", [True, False], ids=["another process changes the GPUs", "no other process"])
def test_an_agent_that_ends_gives_clients_back_unless_another_process_changes_the_gpus(
    tmp_path: Path, busy: bool
) -> None:
    record = AgentStateFile(str(tmp_path))
    record.write(Durable(StoppedServices((StoppedUnit("dcgm.service"),))))
    lock = FileLock(str(tmp_path / "lock"))
    started: list[StoppedServices] = []
    patched: list[NodePatch] = []

    class Machine:
        async def start(self, stopped: StoppedServices) -> None:
            started.append(stopped)

    async def change(make: Callable[[NodeMarks], NodePatch]) -> None:
        patched.append(make(loop.informer.marks))

    loop = loop_over(paused(), lambda informer: None, Hands())
    none: Any = None
    parts = AgentNode(loop.informer, none, record, PauseOwner("me"), lock.path)
    loop.executor = StepExecutor(parts, none, cast(HostServices, Machine()), none)
    loop.informer.change = change  # type: ignore[assignment, method-assign]

    loop.last_observation = make_observation(REQUEST, marks=loop.informer.marks)
    with lock.hold() if busy else nullcontext():
        asyncio.run(loop._restore_at_exit())
    assert (len(started), len([patch for patch in patched if patch])) == ((0, 0) if busy else (1, 1))


def test_a_defect_in_judging_news_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    hands = Hands()

    def broken(o: object) -> bool:
        raise ZeroDivisionError

    async def play() -> None:
        loop = loop_over(paused(), lambda informer: None, hands)
        loop.last_observation = make_observation(REQUEST)
        monkeypatch.setattr(loop, "_is_outdated", broken)
        loop.loop.wake()

    asyncio.run(play())
    assert hands.superseded.is_set()


@pytest.mark.parametrize(
    ("observed", "manage", "record", "given_back"),
    [(False, True, True, False), (True, True, False, True), (True, False, True, True), (True, False, False, False)],
    ids=["it never looked", "ours", "a record of ours", "another manager's"],
)
def test_what_is_paused_is_given_back_at_the_end(observed: bool, manage: bool, record: bool, given_back: bool) -> None:
    changed: list[object] = []
    first = paused() if record else object_of(**paused().metadata.labels)

    async def change(restoration: object) -> None:
        changed.append(restoration)

    async def play() -> None:
        loop = loop_over(first, lambda informer: None, Hands())
        o = make_observation(REQUEST)
        if observed:
            loop.last_observation = msgspec.structs.replace(
                o, settings=msgspec.structs.replace(o.settings, manage=manage)
            )
        actor: Any = SimpleNamespace(
            restoration=lambda marks: "patch", owner=PauseOwner(), node=SimpleNamespace(writer="")
        )
        actor.state_file = SimpleNamespace(value=Durable())
        loop.executor = actor
        loop.informer.change = change  # type: ignore[method-assign, assignment]
        await loop._restore_at_exit()

    asyncio.run(play())
    assert bool(changed) == given_back


@pytest.mark.parametrize(("placed", "asked"), [(("3g.20gb@0",), True), ((), False)], ids=["it destroys", "it creates"])
def test_who_holds_a_device_is_asked_before_something_is_destroyed(
    placed: tuple[str, ...], asked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    eyes = observer(tmp_path, object_of(**{names.CONFIG_LABEL: REQUEST}))
    eyes._hardware = cast(GpuWorker, Still(with_instances(node(), 0, *placed)))
    questions: list[bool] = []

    async def who() -> tuple[tuple[PodDeviceUse, ...], str]:
        questions.append(True)
        return (), ""

    monkeypatch.setattr(eyes, "_query_uses", who)
    o = asyncio.run(eyes.observe(AgentMemory()))
    assert o.plan is not None
    assert decision.touches(o.plan) == asked
    assert bool(questions) == asked


@pytest.mark.parametrize(
    ("drift", "step", "busy"),
    [
        (("x",), steps.Publish(), True),
        (("x",), steps.WaitForEvent(1.0, ""), False),
        ((), steps.Publish(), False),
    ],
    ids=["it changes", "it rests", "all is met"],
)
def test_the_document_waits_while_what_it_shows_is_changed(
    drift: tuple[str, ...], step: steps.Step, busy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []
    monkeypatch.setattr(agent_main, "build_document", lambda *about: SimpleNamespace(drift=drift))
    showing = SimpleNamespace(update=lambda document, uid, *, busy: seen.append(busy))
    shared = SimpleNamespace(hardware=SimpleNamespace(past_runs=None))
    context = SimpleNamespace(document_publisher=showing, pod=None, last_usage=None, shared=shared)
    agent: Any = SimpleNamespace(context=context)
    eyes: Any = SimpleNamespace(sources=lambda settings, inventory: ())
    agent_main.LabelAgent._update_document(agent, eyes, make_observation(REQUEST), step)
    assert seen == [busy]


def test_a_label_that_is_left_to_another_manager_ends_the_wait_that_is_on() -> None:
    hands = Hands()

    async def play() -> None:
        loop = loop_over(paused(), lambda informer: None, hands)
        await loop.cycle()
        loop.loop.wake()
        assert not hands.superseded.is_set()
        cast(Eyes, loop.observer).current = AgentSettings(manage=False)
        loop.loop.wake()
        assert hands.superseded.is_set()

    asyncio.run(play())


def test_a_node_without_a_request_is_not_planned_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    eyes = observer(tmp_path, object_of())
    planned: list[bool] = []

    async def requested(o: Observation, *about: object) -> Observation:
        planned.append(True)
        return o

    monkeypatch.setattr(eyes, "_with_plan", requested)
    assert asyncio.run(eyes.observe(AgentMemory())).request is None
    assert not planned
    eyes._informer.nodes.apply(ObjectChanged(object_of(**{names.CONFIG_LABEL: REQUEST})))
    asyncio.run(eyes.observe(AgentMemory()))
    assert planned


def test_a_stop_ends_a_wait() -> None:
    hands = Hands()
    loop_over(paused(), lambda informer: None, hands).loop.stop()
    assert hands.superseded.is_set()


@pytest.mark.parametrize(("folder", "cdi"), [("", None), ("/etc/cdi", "documents")])
def test_cdi_documents_are_written_where_they_are_not_foreign(
    folder: str, cdi: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class MadeError(Exception):
        pass

    def publisher(*about: object, cdi: object, **more: object) -> None:
        raise MadeError(cdi)

    async def text() -> str:
        return ""

    monkeypatch.setattr(agent_main, "Publisher", publisher)
    monkeypatch.setattr(agent_main, "Observer", lambda *about: SimpleNamespace())
    agent: Any = SimpleNamespace(options=SimpleNamespace(setup=AgentSetup("n"), cdi_dir=folder), informer=None)
    agent.metrics, agent._owner, agent._cdi = LabelAgentMetrics("n"), text, lambda: "documents"
    lock = SimpleNamespace(owner=lambda boot: PauseOwner())
    agent.context = SimpleNamespace(directories=(str(tmp_path),) * 2, lock=lock, uses=None, offering=None, pod="")
    agent.context.shared = SimpleNamespace(boot=text, hardware=None)
    with pytest.raises(MadeError) as made:
        asyncio.run(agent_main.LabelAgent._assemble(agent))
    assert made.value.args == (cdi,)
