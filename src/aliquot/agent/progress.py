"""How far an apply is, on the node, now and then: a patch a step would be a flood."""

from __future__ import annotations

import asyncio
import time

import msgspec

from aliquot.agent.corner import Corner
from aliquot.agent.log import log
from aliquot.agent.status import Status
from aliquot.errors import AliquotError
from aliquot.integrations.kubernetes import names
from aliquot.integrations.kubernetes.operands import NodePatch

EVERY_S = 2.0


class Progress:
    """``report`` may be called from any thread; a patch goes out at most every two seconds, none for short applies."""

    def __init__(self, corner: Corner, status: Status, steps: int) -> None:
        self._corner = corner
        self._status = status
        self._steps = steps
        self._done = 0
        self._last = time.monotonic()
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None

    def report(self, line: str) -> None:
        """One act of the engine."""
        self._loop.call_soon_threadsafe(self._reported, line)

    async def close(self) -> None:
        """Waits for a patch that is on its way, so that it cannot overtake the next one."""
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    def _reported(self, line: str) -> None:
        log.info("%s", line)
        self._done += 1
        busy = self._task is not None and not self._task.done()
        if not busy and time.monotonic() - self._last >= EVERY_S:
            self._last = time.monotonic()
            self._task = asyncio.create_task(self._write(min(self._done, self._steps)))

    async def _write(self, done: int) -> None:
        said = msgspec.structs.replace(self._status, progress=f"{done}/{self._steps}")
        text = f"{said.sentence} ({said.progress})"
        try:
            await self._corner.change(
                lambda marks: NodePatch({}, {names.STATUS_ANNOTATION: said.document(), names.MESSAGE_ANNOTATION: text})
            )
        except AliquotError as error:
            log.debug("progress was not written: %s", error.brief)
