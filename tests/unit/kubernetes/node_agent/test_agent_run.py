"""An agent as a process: its server, the work under the lock, and the order of its shutdown."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from aliquot.errors import BlockedError, DriverHangsError
from aliquot.foundation import driver_calls
from aliquot.kubernetes.label_agent.agent.main import LabelAgent
from aliquot.kubernetes.node_agent import agent_run
from aliquot.kubernetes.node_agent.agent_loop import AgentLoop
from aliquot.kubernetes.node_agent.agent_run import AgentRun, run_agent
from aliquot.kubernetes.node_agent.liveness import SILENT_S
from aliquot.kubernetes.node_agent.shared_parts import Job
from aliquot.kubernetes.virtual_machines.agent.main import DevicesAgent


class Shared:
    """Parts that the roles of a process share. ``done`` records the calls of all."""

    remarks: Sequence[str] = ("a remark",)
    command = "aliquot agent"

    def __init__(self, port: int = -1) -> None:
        self.done: list[str] = []
        self.options = SimpleNamespace(port=port)
        self.metrics = SimpleNamespace(page=SimpleNamespace(render=None))
        self.hardware: Any = SimpleNamespace(patience_s=0.0, stuck_s=0.0, close=self.noting("hardware"))
        self.api = SimpleNamespace(aclose=self.noting("api"))
        self.close = self.noting("shared")

    def noting(self, what: str) -> Any:
        async def note() -> None:
            self.done.append(what)

        return note


class Work:
    """A role that records its calls, and ends immediately."""

    problem, status = "", "ok"

    def __init__(self, shared: Shared | None = None, name: str = "label agent", *, held: bool = True) -> None:
        self.shared: Any = shared or Shared()
        self.done: list[str] = self.shared.done
        self.failure: Exception | None = None
        self.context: Any = SimpleNamespace(
            role=SimpleNamespace(name=name),
            loop=AgentLoop(),
            lock=SimpleNamespace(waiting="", take=self._take, close=lambda: self.done.append("lock")),
            offering=SimpleNamespace(close=self.shared.noting("offering")),
            document_publisher=SimpleNamespace(problem=""),
        )
        self._held = held

    @property
    def run(self) -> AgentRun:
        return AgentRun(self.shared, [self])

    async def _take(self, stopping: asyncio.Event) -> bool:
        self.done.append("taken" if self._held else "waited")
        return self._held

    async def start(self) -> tuple[Job, Sequence[Job]]:
        self.done.append("start")
        return self._rounds(), (self._beside(),)

    async def _rounds(self) -> None:
        await asyncio.sleep(0)
        self.done.append("rounds")
        if self.failure is not None:
            raise self.failure

    async def _beside(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            self.done.append("beside")

    async def close(self) -> None:
        self.done.append("work")


END = ["work", "offering", "shared", "hardware", "api", "lock"]


def test_an_agent_is_taken_apart_in_order() -> None:
    work = Work()
    assert asyncio.run(work.run.run()) == 0
    assert work.done == ["taken", "start", "rounds", "beside", *END]


def test_an_agent_whose_loop_fails_is_taken_apart_all_the_same() -> None:
    work = Work()
    work.failure = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError):
        asyncio.run(work.run.run())
    assert work.done == ["taken", "start", "rounds", "beside", *END]


def test_an_agent_that_ends_before_it_has_the_lock_begins_nothing() -> None:
    work = Work(held=False)
    assert asyncio.run(work.run.run()) == 0
    assert work.done == ["waited", *END]


def test_a_loop_that_waits_for_the_driver_is_left_once_it_is_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    work = Work()
    monkeypatch.setattr(agent_run, "POLL_S", 0.01)
    monkeypatch.setattr(driver_calls, "oldest_s", lambda: 9.0)

    async def hung() -> None:
        work.context.loop.stop()
        await asyncio.Event().wait()

    monkeypatch.setattr(work, "_rounds", hung)
    asyncio.run(asyncio.wait_for(work.run.run(), 5))
    assert work.done == ["taken", "start", "beside", *END]


def test_a_port_that_is_taken_names_the_command_with_another() -> None:
    async def play() -> None:
        server = await asyncio.start_server(lambda reader, writer: None, "", 0)
        work = Work(Shared(server.sockets[0].getsockname()[1]))
        try:
            with pytest.raises(BlockedError, match="cannot listen on port") as caught:
                await work.run.run()
        finally:
            server.close()
        assert caught.value.next_step == "aliquot agent --port 0"
        assert work.done == END

    asyncio.run(play())


def test_the_first_reason_for_which_an_agent_is_not_ready_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    work = Work()
    run = work.run
    work.context.document_publisher.problem = "exceeded quota"
    answer = b"ok, but the node's document was not written: exceeded quota\n"
    assert run._readyz({})[:3] == (200, "text/plain", answer), "an agent that cannot write the document is ready"
    work.context.document_publisher.problem = ""
    work.status = "idle: another one works"
    assert run._readyz({})[:3] == (200, "text/plain", b"idle: another one works\n")
    work.problem = "the server is away"
    assert run._readyz({})[:3] == (503, "text/plain", b"the server is away\n")
    work.context.lock.waiting = "another agent works"
    assert run._readyz({})[2] == b"another agent works\n"
    hang = DriverHangsError("the driver has not returned")
    monkeypatch.setattr("aliquot.foundation.driver_calls.current_hang", lambda: hang)
    assert run._readyz({})[2] == b"the driver has not returned\n"


@pytest.mark.parametrize("agent", [LabelAgent, DevicesAgent])
def test_what_an_agent_has_not_read_comes_before_what_it_has_not_done(agent: Any) -> None:
    informer = SimpleNamespace(unavailable="the server is away", unsynced="Node", node=None, name="gpu-1")
    me = SimpleNamespace(
        informer=informer,
        informers=informer,
        context=SimpleNamespace(loop=SimpleNamespace(error="a round failed"), offering=SimpleNamespace(problem="")),
        publisher=SimpleNamespace(problem="refused"),
        allocations=SimpleNamespace(error="refused"),
    )

    def problem() -> str:
        return str(agent.problem.fget(me))

    assert problem() == "the server is away"
    informer.unavailable = ""
    assert "not read yet" in problem()
    informer.unsynced, informer.node = "", object()
    assert problem() == "a round failed"
    me.context.loop.error = ""
    assert problem() == "refused"


def test_the_agent_is_frugal_from_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(agent_run, "limit_heap", lambda: done.append("frugal"))
    monkeypatch.setattr("aliquot.foundation.logfmt.start", lambda *about, **more: done.append("log"))
    monkeypatch.setattr(agent_run, "SharedParts", lambda options, roles: Shared())

    def make(shared: Any) -> Any:
        done.append("made")
        return Work(shared)

    start: Any = SimpleNamespace(role=None, options=SimpleNamespace(debug=False), make=make)
    assert run_agent([start]) == 0
    assert done == ["frugal", "log", "made"]


class TestTwoRolesInOneProcess:
    """Each has its own lock and loop. Whatever ends one ends the process."""

    def pair(self) -> tuple[Work, Work, AgentRun]:
        first = Work(name="VM agent")
        second = Work(first.shared)
        return first, second, AgentRun(first.shared, [first, second])

    @staticmethod
    async def until_stopped(work: Work) -> None:
        await work.context.loop.stopping.wait()
        work.done.append("stopped")

    def test_the_end_of_one_stops_the_other_before_anything_shared_is_closed(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first, second, run = self.pair()
        monkeypatch.setattr(second, "_rounds", lambda: self.until_stopped(second))
        first.context.loop.code = 1
        assert asyncio.run(run.run()) == 1
        assert first.done.index("stopped") < first.done.index("hardware")
        assert first.done[-8:] == [*["work", "offering"] * 2, "shared", "hardware", "api", "lock", "lock"][-8:]
        assert [first.done.count(each) for each in ("hardware", "api", "lock")] == [1, 1, 2]

    def test_a_failure_of_one_is_that_of_the_process(self, monkeypatch: pytest.MonkeyPatch) -> None:
        first, second, run = self.pair()
        first.failure = ZeroDivisionError()
        monkeypatch.setattr(second, "_rounds", lambda: self.until_stopped(second))
        with pytest.raises(ZeroDivisionError):
            asyncio.run(run.run())
        assert "stopped" in first.done

    def test_a_role_that_cannot_be_closed_leaves_the_others_to_be_closed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        first, _, run = self.pair()

        async def fail() -> None:
            raise OSError(5, "bad disk")

        monkeypatch.setattr(first, "close", fail)
        with pytest.raises(OSError, match="bad disk"):
            asyncio.run(run.run())
        assert first.done[-8:] == ["offering", "work", "offering", "shared", "hardware", "api", "lock", "lock"]

    def test_a_role_works_while_another_waits_for_its_lock(self, monkeypatch: pytest.MonkeyPatch) -> None:
        first, _, run = self.pair()

        async def wait(stopping: asyncio.Event) -> bool:
            await stopping.wait()
            return False

        monkeypatch.setattr(first.context.lock, "take", wait)
        assert asyncio.run(run.run()) == 0
        assert first.done.count("start") == 1
        assert "rounds" in first.done

    def test_the_page_has_a_line_for_each_role(self) -> None:
        first, second, run = self.pair()
        assert run._readyz({})[:3] == (200, "text/plain", b"VM agent: ok\nlabel agent: ok\n")
        second.problem = "the server is away"
        assert run._readyz({})[:3] == (503, "text/plain", b"VM agent: ok\nlabel agent: the server is away\n")
        first.context.lock.waiting = "another agent works"
        assert run._readyz({})[2].startswith(b"VM agent: another agent works\n")

    def test_a_loop_that_stands_still_is_found_beside_one_that_runs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        first, second, run = self.pair()
        first.context.loop.beat = second.context.loop.beat = time.monotonic()
        assert run._healthz({}).status == 200
        second.context.loop.beat -= 2 * SILENT_S
        assert run._healthz({}).status == 503
