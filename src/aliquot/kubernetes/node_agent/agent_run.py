"""Process of an agent: start of its roles, run until a signal, and orderly shutdown."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Protocol

import msgspec

from aliquot.foundation import driver_calls, signals
from aliquot.foundation import logfmt as logs
from aliquot.foundation.http_server import Answer, HttpServer, text_answer
from aliquot.foundation.logfmt import agent_log as log
from aliquot.foundation.process_end import leave_if_hung
from aliquot.kubernetes.node_agent.agent_context import AgentContext
from aliquot.kubernetes.node_agent.liveness import alive
from aliquot.kubernetes.node_agent.malloc_tuning import limit_heap
from aliquot.kubernetes.node_agent.shared_parts import AgentOptions, AgentRole, Job, SharedParts

POLL_S = 0.5
CLOSE_S = 5.0


class AgentWork(Protocol):
    """The work of one role."""

    @property
    def context(self) -> AgentContext: ...

    async def start(self) -> tuple[Job, Sequence[Job]]:
        """Start watching. Return the role's loop, and the jobs that run forever beside it."""
        ...

    async def close(self) -> None:
        """Stop everything that ``start`` has started."""
        ...

    @property
    def problem(self) -> str:
        """Reason why the role is not ready; empty if it is."""
        ...

    @property
    def status(self) -> str:
        """Text for the readiness page of a role that is ready."""
        ...


class RoleStart(msgspec.Struct, frozen=True):
    """A role that a process shall have. ``make`` creates its work."""

    role: AgentRole
    options: AgentOptions
    make: Callable[[SharedParts], AgentWork]


def run_agent(starts: Sequence[RoleStart]) -> int:
    """Run an agent with these roles until SIGTERM, SIGINT or SIGHUP. Raises AliquotError if the start fails.

    The options that all roles have are those of the first one.
    """
    limit_heap()
    options = starts[0].options
    logs.start(log, debug=options.debug)
    shared = SharedParts(options, [start.role for start in starts])
    return asyncio.run(AgentRun(shared, [start.make(shared) for start in starts]).run())


class AgentRun:
    """The process of an agent."""

    def __init__(self, shared: SharedParts, works: Sequence[AgentWork]) -> None:
        self._shared = shared
        self._works = works
        self._loops = [work.context.loop for work in works]

    async def run(self) -> int:
        """Run until a signal, or until a role ends. Return the exit code."""
        async with AsyncExitStack() as ending:
            ending.enter_context(signals.stop_on_signal(self.stop, asyncio.get_running_loop()))
            self._close_at_the_end(ending)
            if self._shared.options.port >= 0:
                server = self._serve_pages()
                ending.callback(server.close)
                log.info("health and metrics on port %d", server.port)
            for sentence in self._shared.remarks:
                log.warning("%s", sentence)
            await self._run_roles()
        return self._code

    def _close_at_the_end(self, ending: AsyncExitStack) -> None:
        """Let the roles be closed first, then what they share. The last one that is registered is the first to end.

        If one cannot be closed, the others are closed all the same.
        """
        shared, works = self._shared, self._works
        ending.callback(lambda: leave_if_hung(self._code, log.warning))
        for work in reversed(works):
            ending.callback(work.context.lock.close)
        ending.push_async_callback(shared.api.aclose)
        ending.push_async_callback(self._close_hardware)
        ending.push_async_callback(shared.close)
        for work in reversed(works):
            ending.push_async_callback(work.context.offering.close)
            ending.push_async_callback(work.close)

    async def _close_hardware(self) -> None:
        with suppress(TimeoutError):  # a hanging driver call ends with the process
            await asyncio.wait_for(self._shared.hardware.close(), CLOSE_S)

    def stop(self) -> None:
        """Stop all roles after their current cycles."""
        for loop in self._loops:
            loop.stop()

    @property
    def _code(self) -> int:
        return max(loop.code for loop in self._loops)

    async def _run_roles(self) -> None:
        """Run the roles until one ends, and let the others end too. Raises what the first of them raises."""
        tasks = [asyncio.create_task(self._run_role(work)) for work in self._works]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            self.stop()
            await asyncio.wait(tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for task in tasks:
            task.result()

    async def _run_role(self, work: AgentWork) -> None:
        """Run one role once it holds its lock, until it is stopped or fails."""
        loop = work.context.loop
        if not await work.context.lock.take(loop.stopping):
            return
        background: list[asyncio.Task[None]] = []
        try:
            rounds, beside = await work.start()
            background += [asyncio.create_task(each) for each in beside]
            for task in background:
                task.add_done_callback(loop.part_ended)
            await self._run_to_end(rounds, loop.stopping)
        finally:
            for task in background:
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)

    async def _run_to_end(self, rounds: Job, stopping: asyncio.Event) -> None:
        """Run a loop until it ends. Raises what the loop raises.

        After the stop signal, a driver call that does not return within ``patience_s`` is abandoned.
        """
        running = asyncio.create_task(rounds)
        try:
            while not (await asyncio.wait((running,), timeout=POLL_S))[0]:
                if stopping.is_set() and driver_calls.oldest_s() >= self._shared.hardware.patience_s:
                    running.cancel()
                    await asyncio.gather(running, return_exceptions=True)
                    return
        finally:
            running.cancel()
        running.result()

    def _serve_pages(self) -> HttpServer:
        shared = self._shared
        pages = {"/healthz": self._healthz, "/readyz": self._readyz, "/metrics": shared.metrics.page.render}
        server = HttpServer(pages, "", shared.options.port, f"{shared.command} --port 0")
        server.attach(asyncio.get_running_loop())
        return server

    # -- pages

    def _healthz(self, _: Mapping[str, str]) -> Answer:
        busy = self._shared.hardware.stuck_s > 0
        answers = [alive(loop.beat, busy=busy) for loop in self._loops]
        return max(answers, key=lambda answer: answer.status)

    def _readyz(self, _: Mapping[str, str]) -> Answer:
        """Return 503 if a driver call hangs, another agent has a role, or the work of a role has a problem.

        If there are several roles, each has a line. An agent that cannot write the node's document is ready; the page
        names the failure.
        """
        hang = driver_calls.current_hang()
        if hang is not None:
            return text_answer(503, hang.brief)
        found = [(work, work.context.lock.waiting or work.problem) for work in self._works]
        lines = [problem or _status(work) for work, problem in found]
        if len(lines) > 1:
            lines = [f"{work.context.role.name}: {line}" for (work, _), line in zip(found, lines, strict=True)]
        return text_answer(503 if any(problem for _, problem in found) else 200, "\n".join(lines))


def _status(work: AgentWork) -> str:
    unwritten = work.context.document_publisher.problem
    more = f", but the node's document was not written: {unwritten}" if unwritten else ""
    return f"{work.status}{more}"
