"""Report of invalid state files as a metric and as events of the node, as logs are easily overlooked."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from aliquot.foundation.state_store import Unreadable, found_unreadable
from aliquot.kubernetes.gpu.reasons import WarningReason
from aliquot.metrics.agent_metrics import SharedMetrics

PAUSE_S = 60.0


class StateFileReport:
    """Checks the state files in ``directories``; ``warn`` writes an event with a reason and a sentence."""

    def __init__(
        self, directories: Sequence[str], metrics: SharedMetrics, warn: Callable[[WarningReason, str], Awaitable[None]]
    ) -> None:
        self._directories = directories
        self._metrics = metrics
        self._warn = warn
        self._reported: set[Unreadable] = set()

    async def run(self) -> None:
        """Check every ``PAUSE_S`` seconds, forever."""
        while True:
            await self.check()
            await asyncio.sleep(PAUSE_S)

    async def check(self) -> None:
        """Count the invalid files, and write an event for each new one."""
        found = await asyncio.to_thread(found_unreadable, *self._directories)
        self._metrics.set_unreadable(found)
        fresh = sorted(set(found) - self._reported)
        self._reported &= set(found)
        for each in fresh:
            self._reported.add(each)
            await self._warn("StateFileUnreadable", str(each))
