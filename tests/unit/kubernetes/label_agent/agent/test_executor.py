"""Step executor of the agent: the devices that it withholds from the kubelet before it rests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from aliquot.errors import AliquotError, HardwareError
from aliquot.foundation.lock import FileLock
from aliquot.hardware.systemd.units import StoppedServices, StoppedUnit
from aliquot.kubernetes.gpu import gpu_operands as operands
from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.gpu.config_label import ConfigFailure
from aliquot.kubernetes.gpu.gpu_operands import NodeMarks
from aliquot.kubernetes.gpu.managed_label import MIG
from aliquot.kubernetes.gpu.node_status import AgentStatus
from aliquot.kubernetes.gpu.pause_owner import PauseOwner
from aliquot.kubernetes.gpu.reasons import FailureReason
from aliquot.kubernetes.label_agent.agent import pod_waits
from aliquot.kubernetes.label_agent.agent.agent_node import AgentNode
from aliquot.kubernetes.label_agent.agent.executor import StepExecutor
from aliquot.kubernetes.label_agent.agent.metrics import LabelAgentMetrics
from aliquot.kubernetes.label_agent.agent.observation import AgentMemory, Durable, RebootMark
from aliquot.kubernetes.label_agent.agent.state_file import AgentStateFile
from aliquot.kubernetes.label_agent.agent.steps import (
    Pause,
    Reboot,
    Restore,
    Retry,
    StartServices,
    StopServices,
    WaitForEvent,
)
from support.agent_observations import make_observation


def executor(node: tuple[object, ...], publisher: object, host: object, metrics: object) -> StepExecutor:
    """Build an executor with only some of its parts."""
    return StepExecutor(AgentNode(*cast(Any, node)), *cast(Any, (publisher, host, metrics)))


class Publisher:
    """Records what is withheld from the kubelet."""

    problem = ""

    def __init__(self) -> None:
        self.withheld: list[str] = []
        self.offering = self

    def withhold_all(self) -> None:
        self.withheld.append("all")


@pytest.mark.parametrize(("reason", "withheld"), [("DriverHangs", []), ("NoDriver", ["all"])])
def test_a_driver_that_hangs_takes_nothing_from_kubelet(reason: FailureReason, withheld: list[str]) -> None:
    publisher = Publisher()
    actor = executor((None, None, None), publisher, None, None)
    seen = cast(Any, SimpleNamespace(inventory=None, failure=ConfigFailure(reason, "why")))
    asyncio.run(actor.execute(WaitForEvent(1.0, "failed"), seen, AgentMemory()))
    assert publisher.withheld == withheld


class Server:
    """A server with a node whose status is written, and with events."""

    def __init__(self) -> None:
        self.events: list[AgentStatus] = []

    async def change(self, change: Callable[[NodeMarks], object]) -> None:
        change(NodeMarks({}, {}))

    async def event(self, status: AgentStatus) -> None:
        self.events.append(status)


def unchanged(marks: object) -> bool:
    return False


@pytest.mark.parametrize(
    ("previous", "label", "level", "events"),
    [
        (None, "", "WARNING", 1),
        (AgentStatus("failed", "Held", "held", "x"), "failed", None, 0),
        (AgentStatus("failed", "Held", "held", "x"), "", "WARNING", 1),
        (AgentStatus("failed", "NoGpu", "other", "x"), "failed", "WARNING", 1),
    ],
    ids=["first", "known", "the label was taken away", "another reason"],
)
def test_news_is_logged_and_becomes_an_event(
    previous: AgentStatus | None, label: str, level: str | None, events: int, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server()
    actor = executor((server, None, None), None, None, LabelAgentMetrics("n"))
    seen = cast(
        Any,
        SimpleNamespace(managed=MIG, state=label, status=previous, now=1.0, was_requested_again=unchanged),
    )
    reported = AgentStatus("failed", "Held", "held", "x", details=("pod ml/train",))
    with caplog.at_level("INFO", "aliquot.agent"):
        asyncio.run(actor.report(reported, seen))
    lines = [(each.levelname, each.getMessage()) for each in caplog.records]
    assert len(server.events) == events
    assert ((level, "held") in lines) == bool(events)
    assert (("INFO", "pod ml/train") in lines) == bool(events)
    changing = f"Changing the '{names.STATE_LABEL}' node label to 'failed'"
    assert (("INFO", changing) in lines) == (label != "failed")


def test_success_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    record = SimpleNamespace(value=SimpleNamespace(reboot=None))
    actor = executor((Server(), None, None), None, record, LabelAgentMetrics("n"))
    actor.state_file = cast(Any, record)
    seen = cast(Any, SimpleNamespace(managed=MIG, state="", status=None, now=1.0, was_requested_again=unchanged))
    with caplog.at_level("INFO", "aliquot.agent"):
        asyncio.run(actor.report(AgentStatus("success", "Applied", "applied"), seen))
    assert [each.levelname for each in caplog.records if each.getMessage() == "applied"] == ["INFO"]


class HostServices:
    """Starts services, or fails."""

    def __init__(self, wrong: AliquotError | None = None) -> None:
        self.wrong = wrong
        self.started: list[object] = []

    async def start(self, stopped: object) -> None:
        self.started.append(stopped)
        if self.wrong is not None:
            raise self.wrong


def _starting(record: AgentStateFile, machine: HostServices) -> AgentMemory:
    actor = executor((Server(), None, None), None, None, LabelAgentMetrics("n"))
    actor.state_file, actor.host = record, cast(Any, machine)
    return asyncio.run(
        actor.execute(StartServices(), make_observation("all-1g.5gb"), AgentMemory(services_stopped=True))
    )


def test_services_that_were_stopped_are_started_once(tmp_path: Path) -> None:
    stopped = StoppedServices((StoppedUnit("dcgm.service"),))
    record = AgentStateFile(str(tmp_path))
    record.write(Durable(stopped=stopped))
    machine = HostServices()
    assert not _starting(record, machine).services_stopped
    assert record.value == Durable()
    assert not _starting(record, machine).services_stopped
    assert machine.started == [stopped], "no services are left to start"


def test_a_status_that_was_removed_asks_again(caplog: pytest.LogCaptureFixture) -> None:
    actor = executor((Server(), None, None), None, None, LabelAgentMetrics("n"))
    m = AgentMemory(failed=ConfigFailure("ApplyFailed", "boom"), failures=3)
    with caplog.at_level("INFO", "aliquot.agent"):
        assert asyncio.run(actor.execute(Retry(), make_observation("all-1g.5gb"), m)) == m.after_retry_request()
    assert "the agent retries at once" in caplog.text


def test_clients_are_not_given_back_while_another_process_holds_the_change_lock(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    actor = executor((None, None, None, PauseOwner("me"), path), None, None, None)
    paused = NodeMarks({f"{names.DEPLOY_PREFIX}dcgm": names.PAUSED}, {})
    with FileLock(path).hold():
        assert actor.node.writer
        assert not actor.restoration(paused)
    assert not actor.node.writer
    assert actor.restoration(paused).labels == {f"{names.DEPLOY_PREFIX}dcgm": "true"}


def test_the_wait_for_another_process_grows_while_the_driver_hangs() -> None:
    actor = executor((None, None, None), Publisher(), None, None)
    seen = cast(Any, SimpleNamespace(inventory=None, failure=ConfigFailure("DriverHangs", "why")))
    waited = asyncio.run(actor.execute(WaitForEvent(1.0, "failed", locked=True), seen, AgentMemory(lockouts=2)))
    assert waited.lockouts == 3
    assert asyncio.run(actor.execute(WaitForEvent(1.0, "failed"), seen, waited)).lockouts == 0


def test_what_is_given_back_is_cleared_no_more() -> None:
    actor = executor((Server(), None, None, PauseOwner()), None, None, LabelAgentMetrics("n"))
    m = AgentMemory(operands_gone=True, services_stopped=True, waiting_since=7.0)
    after = asyncio.run(actor.execute(Restore(None), make_observation("all-1g.5gb"), m))
    assert (after.operands_gone, after.services_stopped, after.waiting_since) == (False, False, 0.0)


@pytest.mark.parametrize(("clients", "namespace"), [("", "agent-ns"), ("gpu-operator", "gpu-operator")])
def test_clients_are_looked_for_where_they_run(clients: str, namespace: str) -> None:
    actor = executor((None, None, None), None, None, None)
    actor.informer = cast(Any, SimpleNamespace(namespace="agent-ns"))
    actor.publisher = cast(Any, SimpleNamespace(setup=SimpleNamespace(clients_namespace=clients)))
    assert actor.client_namespaces() == (namespace,)


@pytest.mark.parametrize(
    ("status", "did", "lines"),
    [
        (None, "", ["Restarting all GPU clients"]),
        (
            AgentStatus("success", "Applied", "applied"),
            "created",
            ["Restarting validator pod", "Restarting all GPU clients", "MIG configuration applied successfully"],
        ),
        (AgentStatus("failed", "Held", "held"), "created", ["Restarting all GPU clients"]),
    ],
    ids=["nothing was requested", "success", "failure"],
)
def test_validators_run_again_after_a_success_only(
    status: AgentStatus | None,
    did: str,
    lines: list[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    deleted: list[object] = []

    async def delete_validators(*about: object) -> None:
        deleted.append(about)

    monkeypatch.setattr("aliquot.kubernetes.label_agent.agent.executor.pods.delete_validators", delete_validators)
    server: Any = Server()
    server.api, server.name, server.namespace = None, "n", "ns"
    record: Any = SimpleNamespace(value=Durable())
    publisher: Any = SimpleNamespace(setup=SimpleNamespace(clients_namespace=""))
    actor = executor((server, None, None, PauseOwner()), None, None, LabelAgentMetrics("n"))
    actor.state_file, actor.publisher = record, publisher
    with caplog.at_level("INFO", "aliquot.agent"):
        asyncio.run(actor.execute(Restore(status), make_observation("all-1g.5gb"), AgentMemory(last_change=did)))
    plain = [each.getMessage() for each in caplog.records if getattr(each, "plain", False)]
    plain = [text for text in plain if not text.startswith("Changing")]
    assert len(plain) == len(lines), plain
    assert all(text.startswith(line) for text, line in zip(plain, lines, strict=True))
    assert bool(deleted) == (len(lines) == 3)


def test_services_are_stopped_and_recorded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    stopped = StoppedServices((StoppedUnit("dcgm.service"),))

    class Machine:
        async def stop(self, services: object, note: Callable[[StoppedServices], None], previous: object) -> None:
            note(stopped)

    actor = executor((Server(), None, None, PauseOwner()), None, None, LabelAgentMetrics("n"))
    actor.state_file, actor.host = AgentStateFile(str(tmp_path)), cast(Any, Machine())
    with caplog.at_level("INFO", "aliquot.agent"):
        m = asyncio.run(actor.execute(StopServices(("dcgm.service",)), make_observation("all-1g.5gb"), AgentMemory()))
    assert m.services_stopped
    assert actor.state_file.value.stopped == stopped
    assert "Shutting down all GPU clients on the host by stopping their systemd services" in caplog.text


def test_a_pause_is_recorded_as_paused_again_only_where_it_was_paused_before() -> None:
    o = make_observation("all-1g.5gb")
    assert o.marks.pause_record is None
    assert pod_waits._paused_operands(o, operands.OPERANDS) == []


@pytest.mark.parametrize(("recorded", "pauses"), [(False, 1), (True, 3)], ids=["given back", "undone by another"])
def test_pauses_that_were_undone_are_counted(recorded: bool, pauses: int) -> None:
    o = make_observation("all-1g.5gb")
    if recorded:
        patch = operands.pause(o.marks, operands.OPERANDS, requested=o.digest)
        annotations = {name: text for name, text in patch.annotations.items() if text is not None}
        o = msgspec.structs.replace(o, marks=NodeMarks(o.marks.labels, annotations))
    actor = executor((Server(), None, None, PauseOwner()), None, None, LabelAgentMetrics("n"))
    step = Pause((), False, AgentStatus("pending", "Changing", "to create"))
    m = asyncio.run(actor.execute(step, o, AgentMemory(paused_for=o.attempt, pauses=2)))
    assert m.pauses == pauses


@pytest.mark.parametrize("wrong", [None, HardwareError("no")], ids=["it reboots", "it is refused"])
def test_a_reboot_is_recorded_before_it_is_begun(wrong: AliquotError | None, tmp_path: Path) -> None:
    o, recorded = make_observation("all-1g.5gb"), list[object]()

    class Machine:
        async def reboot(self) -> None:
            recorded.append(AgentStateFile(str(tmp_path)).value.reboot)
            if wrong is not None:
                raise wrong

    publisher: Any = SimpleNamespace(problem="")
    actor = executor((Server(), None, None, PauseOwner()), publisher, None, LabelAgentMetrics("n"))
    actor.state_file, actor.host = AgentStateFile(str(tmp_path)), cast(Any, Machine())
    m = asyncio.run(actor.execute(Reboot(AgentStatus("rebooting", "Rebooting", "reboot")), o, AgentMemory()))
    mark = RebootMark(o.digest, o.boot, o.clock)
    assert recorded == [mark]
    assert AgentStateFile(str(tmp_path)).value.reboot == (None if wrong else mark)
    assert m.rebooting == ("" if wrong else o.boot)
    assert (m.failed is not None) == bool(wrong)
