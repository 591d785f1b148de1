"""How an agent's loop ends although a driver call does not return."""

from __future__ import annotations

import asyncio
from typing import Protocol

from aliquot.foundation import driver_calls

POLL_S = 0.5


class AgentLoop(Protocol):
    """The main loop of an agent."""

    @property
    def stopping(self) -> bool:
        """Whether the loop was asked to end."""
        ...

    async def run(self) -> None: ...


class Worker(Protocol):
    """The thread that calls the driver, as ``Hardware``."""

    @property
    def patience_s(self) -> float:
        """How long an agent that is to end waits for the present call."""
        ...


async def run_to_end(loop: AgentLoop, worker: Worker) -> None:
    """Run a loop until it ends; once it was asked to end, a driver call that does not return is not waited for. Raises
    what the loop raises.
    """
    running = asyncio.create_task(loop.run())
    try:
        while not (await asyncio.wait((running,), timeout=POLL_S))[0]:
            if loop.stopping and driver_calls.oldest_s() >= worker.patience_s:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
                return
    finally:
        running.cancel()
    running.result()
