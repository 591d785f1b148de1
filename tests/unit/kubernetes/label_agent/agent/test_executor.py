"""What the agent does before a rest, for kubelet."""

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
from aliquot.kubernetes.gpu.config_label import Trouble
from aliquot.kubernetes.gpu.gpu_operands import Marks
from aliquot.kubernetes.gpu.node_status import Status
from aliquot.kubernetes.gpu.pause_owner import Owner
from aliquot.kubernetes.label_agent.agent import pod_waits
from aliquot.kubernetes.label_agent.agent.executor import Actor
from aliquot.kubernetes.label_agent.agent.metrics import Tally
from aliquot.kubernetes.label_agent.agent.observation import Durable, Memory, RebootMark
from aliquot.kubernetes.label_agent.agent.state_file import Record
from aliquot.kubernetes.label_agent.agent.steps import Pause, Reboot, Rest, Restore, Retry, StartServices, StopServices
from support.agent_looks import look


class Publisher:
    """Notes what is withheld from kubelet."""

    problem = ""

    def __init__(self) -> None:
        self.withheld: list[str] = []

    async def withhold_all(self) -> None:
        self.withheld.append("all")


@pytest.mark.parametrize(("reason", "withheld"), [("DriverHangs", []), ("NoDriver", ["all"])])
def test_a_driver_that_hangs_takes_nothing_from_kubelet(reason: str, withheld: list[str]) -> None:
    publisher = Publisher()
    actor = Actor(*cast(Any, (None, None, None, publisher, None, None, None)))
    seen = cast(Any, SimpleNamespace(inventory=None, trouble=Trouble(reason, "why")))
    asyncio.run(actor.act(Rest(1.0, "failed"), seen, Memory()))
    assert publisher.withheld == withheld


class Server:
    """A node that a status is written to, and the events."""

    def __init__(self) -> None:
        self.events: list[Status] = []

    async def change(self, change: Callable[[Marks], object]) -> None:
        change(Marks({}, {}))

    async def event(self, status: Status, now: float) -> None:
        self.events.append(status)


@pytest.mark.parametrize(
    ("former", "label", "level", "events"),
    [
        (None, "", "WARNING", 1),
        (Status("failed", "Held", "held", "x"), "failed", None, 0),
        (Status("failed", "Held", "held", "x"), "", "WARNING", 1),
        (Status("failed", "Other", "other", "x"), "failed", "WARNING", 1),
    ],
    ids=["first", "known", "the label was taken away", "another reason"],
)
def test_news_is_logged_and_becomes_an_event(
    former: Status | None, label: str, level: str | None, events: int, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server()
    actor = Actor(*cast(Any, (server, None, None, None, None, Tally("n"), None)))
    seen = cast(Any, SimpleNamespace(state=label, status=former, now=1.0, asked_anew=lambda marks: False))
    told = Status("failed", "Held", "held", "x", details=("pod ml/train",))
    with caplog.at_level("INFO", "aliquot.agent"):
        asyncio.run(actor.report(told, seen))
    lines = [(each.levelname, each.getMessage()) for each in caplog.records]
    assert len(server.events) == events
    assert ((level, "held") in lines) == bool(events)
    assert (("INFO", "pod ml/train") in lines) == bool(events)
    changing = f"Changing the '{names.STATE_LABEL}' node label to 'failed'"
    assert (("INFO", changing) in lines) == (label != "failed")


def test_success_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    record = SimpleNamespace(value=SimpleNamespace(reboot=None))
    actor = Actor(*cast(Any, (Server(), None, None, None, record, Tally("n"), None)))
    actor.record = cast(Any, record)
    seen = cast(Any, SimpleNamespace(state="", status=None, now=1.0, asked_anew=lambda marks: False))
    with caplog.at_level("INFO", "aliquot.agent"):
        asyncio.run(actor.report(Status("success", "Applied", "applied"), seen))
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


def _starting(record: Record, machine: HostServices) -> Memory:
    actor = Actor(*cast(Any, (Server(), None, None, None, None, Tally("n"), None)))
    actor.record, actor.machine = record, cast(Any, machine)
    return asyncio.run(actor.act(StartServices(), look("all-1g.5gb"), Memory(silenced=True)))


def test_services_that_were_stopped_are_started_once(tmp_path: Path) -> None:
    stopped = StoppedServices((StoppedUnit("dcgm.service"),))
    record = Record(str(tmp_path))
    record.write(Durable(stopped=stopped))
    machine = HostServices()
    assert not _starting(record, machine).silenced
    assert record.value == Durable()
    assert not _starting(record, machine).silenced
    assert machine.started == [stopped], "nothing is owed any more"


def test_a_status_that_was_taken_away_asks_again(caplog: pytest.LogCaptureFixture) -> None:
    actor = Actor(*cast(Any, (Server(), None, None, None, None, Tally("n"), None)))
    m = Memory(failed=Trouble("ApplyFailed", "boom"), failures=3)
    with caplog.at_level("INFO", "aliquot.agent"):
        assert asyncio.run(actor.act(Retry(), look("all-1g.5gb"), m)) == m.asked_again()
    assert "trying again at once" in caplog.text


def test_clients_are_not_given_back_while_another_process_holds_the_change_lock(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    actor = Actor(*cast(Any, (None, None, None, None, None, None, Owner("me"), path)))
    paused = Marks({f"{names.DEPLOY_PREFIX}dcgm": names.PAUSED}, {})
    with FileLock(path).hold():
        assert actor.writer
        assert not actor.restoration(paused)
    assert not actor.writer
    assert actor.restoration(paused).labels == {f"{names.DEPLOY_PREFIX}dcgm": "true"}


def test_the_wait_for_another_process_grows_while_the_driver_hangs() -> None:
    actor = Actor(*cast(Any, (None, None, None, Publisher(), None, None, None)))
    seen = cast(Any, SimpleNamespace(inventory=None, trouble=Trouble("DriverHangs", "why")))
    waited = asyncio.run(actor.act(Rest(1.0, "failed", locked=True), seen, Memory(lockouts=2)))
    assert waited.lockouts == 3
    assert asyncio.run(actor.act(Rest(1.0, "failed"), seen, waited)).lockouts == 0


def test_what_is_given_back_is_cleared_no_more() -> None:
    actor = Actor(*cast(Any, (Server(), None, None, None, None, Tally("n"), Owner())))
    m = Memory(cleared=True, silenced=True, waiting_since=7.0)
    after = asyncio.run(actor.act(Restore(None), look("all-1g.5gb"), m))
    assert (after.cleared, after.silenced, after.waiting_since) == (False, False, 0.0)


@pytest.mark.parametrize(("clients", "namespace"), [("", "agent-ns"), ("gpu-operator", "gpu-operator")])
def test_clients_are_looked_for_where_they_run(clients: str, namespace: str) -> None:
    actor = Actor(*cast(Any, (None, None, None, None, None, None, None)))
    actor.corner = cast(Any, SimpleNamespace(namespace="agent-ns"))
    actor.publisher = cast(Any, SimpleNamespace(place=SimpleNamespace(clients_namespace=clients)))
    assert actor.namespaces() == (namespace,)


@pytest.mark.parametrize(
    ("status", "did", "lines"),
    [
        (None, "", ["Restarting all GPU clients"]),
        (
            Status("success", "Applied", "applied"),
            "created",
            ["Restarting validator pod", "Restarting all GPU clients", "MIG configuration applied successfully"],
        ),
        (Status("failed", "Held", "held"), "created", ["Restarting all GPU clients"]),
    ],
    ids=["nothing was requested", "success", "failure"],
)
def test_validators_run_again_after_a_success_only(
    status: Status | None, did: str, lines: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    deleted: list[object] = []

    async def delete_validators(*about: object) -> None:
        deleted.append(about)

    monkeypatch.setattr("aliquot.kubernetes.label_agent.agent.executor.pods.delete_validators", delete_validators)
    server: Any = Server()
    server.api, server.name, server.namespace = None, "n", "ns"
    record: Any = SimpleNamespace(value=Durable())
    publisher: Any = SimpleNamespace(place=SimpleNamespace(clients_namespace=""))
    actor = Actor(*cast(Any, (server, None, None, None, None, Tally("n"), Owner())))
    actor.record, actor.publisher = record, publisher
    with caplog.at_level("INFO", "aliquot.agent"):
        asyncio.run(actor.act(Restore(status), look("all-1g.5gb"), Memory(did=did)))
    plain = [each.getMessage() for each in caplog.records if getattr(each, "plain", False)]
    plain = [text for text in plain if not text.startswith("Changing")]
    assert len(plain) == len(lines), plain
    assert all(text.startswith(line) for text, line in zip(plain, lines, strict=True))
    assert bool(deleted) == (len(lines) == 3)


def test_services_are_stopped_and_recorded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    stopped = StoppedServices((StoppedUnit("dcgm.service"),))

    class Machine:
        async def stop(self, services: object, note: Callable[[StoppedServices], None], former: object) -> None:
            note(stopped)

    actor = Actor(*cast(Any, (Server(), None, None, None, None, Tally("n"), Owner())))
    actor.record, actor.machine = Record(str(tmp_path)), cast(Any, Machine())
    with caplog.at_level("INFO", "aliquot.agent"):
        m = asyncio.run(actor.act(StopServices(("dcgm.service",)), look("all-1g.5gb"), Memory()))
    assert m.silenced
    assert actor.record.value.stopped == stopped
    assert "Shutting down all GPU clients on the host by stopping their systemd services" in caplog.text


def test_a_pause_is_recorded_as_paused_again_only_where_it_was_paused_before() -> None:
    o = look("all-1g.5gb")
    assert o.marks.record is None
    assert pod_waits._paused(o, operands.OPERANDS) == []


@pytest.mark.parametrize(("recorded", "pauses"), [(False, 1), (True, 3)], ids=["given back", "undone by another"])
def test_pauses_that_were_undone_are_counted(recorded: bool, pauses: int) -> None:
    o = look("all-1g.5gb")
    if recorded:
        patch = operands.pause(o.marks, operands.OPERANDS, wish=o.digest)
        annotations = {name: text for name, text in patch.annotations.items() if text is not None}
        o = msgspec.structs.replace(o, marks=Marks(o.marks.labels, annotations))
    actor = Actor(*cast(Any, (Server(), None, None, None, None, Tally("n"), Owner())))
    step = Pause((), False, Status("pending", "Changing", "to create"))
    m = asyncio.run(actor.act(step, o, Memory(paused_for=o.attempt, pauses=2)))
    assert m.pauses == pauses


@pytest.mark.parametrize("wrong", [None, HardwareError("no")], ids=["it reboots", "it is refused"])
def test_a_reboot_is_recorded_before_it_is_begun(wrong: AliquotError | None, tmp_path: Path) -> None:
    o, recorded = look("all-1g.5gb"), list[object]()

    class Machine:
        async def reboot(self) -> None:
            recorded.append(Record(str(tmp_path)).value.reboot)
            if wrong is not None:
                raise wrong

    publisher: Any = SimpleNamespace(problem="")
    actor = Actor(*cast(Any, (Server(), None, None, publisher, None, Tally("n"), Owner())))
    actor.record, actor.machine = Record(str(tmp_path)), cast(Any, Machine())
    m = asyncio.run(actor.act(Reboot(Status("rebooting", "Reboot", "reboot")), o, Memory()))
    mark = RebootMark(o.digest, o.boot, o.clock)
    assert recorded == [mark]
    assert Record(str(tmp_path)).value.reboot == (None if wrong else mark)
    assert m.rebooting == ("" if wrong else o.boot)
    assert (m.failed is not None) == bool(wrong)
