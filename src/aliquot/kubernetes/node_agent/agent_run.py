"""Process of an agent: startup, run until a signal, and orderly shutdown."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any, Protocol, TypeVar

from aliquot.foundation import driver_calls, signals
from aliquot.foundation import logfmt as logs
from aliquot.foundation.http_server import Answer, HttpServer, text_answer
from aliquot.foundation.logfmt import agent_log as log
from aliquot.foundation.process_end import leave_if_hung
from aliquot.kubernetes.node_agent.agent_context import AgentContext, AgentOptions
from aliquot.kubernetes.node_agent.liveness import alive
from aliquot.kubernetes.node_agent.malloc_tuning import limit_heap

POLL_S = 0.5
CLOSE_S = 5.0
Job = Coroutine[Any, Any, None]


class DriverThread(Protocol):
    """The thread that calls the driver, such as ``GpuWorker``."""

    @property
    def patience_s(self) -> float:
        """Seconds that an agent waits for the current call when it stops."""
        ...

    @property
    def stuck_s(self) -> float:
        """Seconds for which the current driver call has been running; 0 without a call."""
        ...

    async def close(self) -> None: ...


class AgentWork(Protocol):
    """The work of one kind of agent. ``remarks`` are logged at the start."""

    @property
    def context(self) -> AgentContext: ...

    @property
    def hardware(self) -> DriverThread: ...

    @property
    def remarks(self) -> Sequence[str]: ...

    async def start(self) -> tuple[Job, Sequence[Job]]:
        """Start watching. Return the agent's loop, and the jobs that run forever beside it."""
        ...

    async def close(self) -> None:
        """Stop everything that ``start`` has started."""
        ...

    @property
    def problem(self) -> str:
        """Reason why the agent is not ready; empty if it is."""
        ...

    @property
    def status(self) -> str:
        """Text for the readiness page of an agent that is ready."""
        ...


Options = TypeVar("Options", bound=AgentOptions)


def run_agent(make: Callable[[Options], AgentWork], options: Options) -> int:
    """Run an agent until SIGTERM, SIGINT or SIGHUP. Raises AliquotError if the start fails."""
    limit_heap()
    logs.start(log, debug=options.debug)
    return asyncio.run(AgentRun(make(options)).run())


class AgentRun:
    """The process of an agent."""

    def __init__(self, work: AgentWork) -> None:
        self._work = work
        self._context = work.context

    async def run(self) -> int:
        """Run until a signal. Return the exit code."""
        context, loop = self._context, self._context.loop
        ending = ExitStack()
        background: list[asyncio.Task[None]] = []
        server: HttpServer | None = None
        try:
            if context.options.port >= 0:
                server = self._serve_pages()
                log.info("health and metrics on port %d", server.port)
            for sentence in self._work.remarks:
                log.warning("%s", sentence)
            ending.enter_context(signals.stop_on_signal(loop.stop, asyncio.get_running_loop()))
            if not await context.lock.take(loop.stopping):
                return loop.code
            rounds, beside = await self._work.start()
            background += [asyncio.create_task(each) for each in beside]
            for task in background:
                task.add_done_callback(loop.part_ended)
            await self._run_to_end(rounds)
        finally:
            for task in background:
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)
            if server is not None:
                server.close()
            await self._work.close()
            await context.offering.close()
            with suppress(TimeoutError):  # a hanging driver call ends with the process
                await asyncio.wait_for(self._work.hardware.close(), CLOSE_S)
            await context.api.aclose()
            context.lock.close()
            leave_if_hung(loop.code, log.warning)
            ending.close()
        return loop.code

    async def _run_to_end(self, rounds: Job) -> None:
        """Run the loop until it ends. Raises what the loop raises.

        After the stop signal, a driver call that does not return within ``patience_s`` is abandoned.
        """
        running = asyncio.create_task(rounds)
        try:
            while not (await asyncio.wait((running,), timeout=POLL_S))[0]:
                stopping = self._context.loop.stopping.is_set()
                if stopping and driver_calls.oldest_s() >= self._work.hardware.patience_s:
                    running.cancel()
                    await asyncio.gather(running, return_exceptions=True)
                    return
        finally:
            running.cancel()
        running.result()

    def _serve_pages(self) -> HttpServer:
        context = self._context
        pages = {"/healthz": self._healthz, "/readyz": self._readyz, "/metrics": context.metrics.page.render}
        server = HttpServer(pages, "", context.options.port, f"{context.role.command} --port 0")
        server.attach(asyncio.get_running_loop())
        return server

    # -- pages

    def _healthz(self, _: Mapping[str, str]) -> Answer:
        return alive(self._context.loop.beat, busy=self._work.hardware.stuck_s > 0)

    def _readyz(self, _: Mapping[str, str]) -> Answer:
        """Return 503 if a driver call hangs, another agent has the role, or the agent's work has a problem.

        An agent that cannot write the node's document is ready; the page names the failure.
        """
        hang = driver_calls.current_hang()
        problem = (hang.brief if hang is not None else "") or self._context.lock.waiting or self._work.problem
        if problem:
            return text_answer(503, problem)
        unwritten = self._context.document_publisher.problem
        more = f", but the node's document was not written: {unwritten}" if unwritten else ""
        return text_answer(200, f"{self._work.status}{more}")
