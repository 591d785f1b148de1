"""State files that cannot be understood, as a metric and as events of the node: a log line alone is not read."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from aliquot.foundation.state_store import Unreadable, found_unreadable
from aliquot.metrics.agent_metrics import AgentMetrics

REASON = "StateFileUnreadable"
PAUSE_S = 60.0


class StateFileReport:
    """``directories`` are where the node's state lies; ``warn`` writes an event of a reason and a sentence."""

    def __init__(
        self, directories: Sequence[str], metrics: AgentMetrics, warn: Callable[[str, str], Awaitable[None]]
    ) -> None:
        self._directories = directories
        self._metrics = metrics
        self._warn = warn
        self._reported: set[Unreadable] = set()

    async def run(self) -> None:
        """Look again and again, without end."""
        while True:
            await self.check()
            await asyncio.sleep(PAUSE_S)

    async def check(self) -> None:
        """Count the files that cannot be understood, and write an event for each new one."""
        found = await asyncio.to_thread(found_unreadable, *self._directories)
        self._metrics.set_unreadable(found)
        fresh = sorted(set(found) - self._reported)
        self._reported &= set(found)
        for each in fresh:
            self._reported.add(each)
            await self._warn(REASON, str(each))
