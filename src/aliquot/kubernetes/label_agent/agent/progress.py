"""Progress of an apply in the node's status, with a rate limit, as a patch for each action would flood the server."""

from __future__ import annotations

import asyncio
import time
from itertools import count

import msgspec

from aliquot.errors import AliquotError
from aliquot.foundation.logfmt import agent_log as log
from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.gpu.gpu_operands import NodePatch
from aliquot.kubernetes.gpu.node_status import AgentStatus
from aliquot.kubernetes.label_agent.agent.node_informer import NodeInformer

EVERY_S = 2.0


class Progress:
    """Progress of an apply. ``report`` may be called from any thread; patches are at least ``EVERY_S`` seconds apart.

    A short apply sends none.
    """

    def __init__(self, informer: NodeInformer, status: AgentStatus, steps: int) -> None:
        self._informer = informer
        self._status = status
        self._steps = steps
        self._action_numbers = count(1)
        self._done = 0
        self._last = time.monotonic()
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None

    def report(self, line: str) -> None:
        """Report an action of the engine. The event loop is woken only for a write."""
        log.info("%s", line)
        self._done = next(self._action_numbers)
        if self._due:
            self._loop.call_soon_threadsafe(self._begin)

    async def close(self) -> None:
        """Wait for a patch in flight, so that it cannot overwrite a later one."""
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    @property
    def _due(self) -> bool:
        return time.monotonic() - self._last >= EVERY_S

    def _begin(self) -> None:
        busy = self._task is not None and not self._task.done()
        if not busy and self._due:
            self._last = time.monotonic()
            self._task = asyncio.create_task(self._write(min(self._done, self._steps)))

    async def _write(self, done: int) -> None:
        updated = msgspec.structs.replace(self._status, progress=f"{done}/{self._steps}")
        text = f"{updated.sentence} ({updated.progress})"
        try:
            await self._informer.change(
                lambda marks: NodePatch(
                    {}, {names.STATUS_ANNOTATION: updated.document(), names.MESSAGE_ANNOTATION: text}
                )
            )
        except AliquotError as error:
            log.debug("cannot write the progress: %s", error.brief)
