"""Look, make the objects tell the truth, carry out one wish, look again: until nothing is left, then until something
happens.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from aliquot.errors import AliquotError, DriverHangsError
from aliquot.foundation.backoff import Backoff
from aliquot.foundation.logfmt import agent_log as log
from aliquot.kubernetes.client.errors import ApiError
from aliquot.kubernetes.node_agent.messages import DRIVER_HANGS
from aliquot.kubernetes.virtual_machines.agent import node_report as tell
from aliquot.kubernetes.virtual_machines.agent.informers import Corner
from aliquot.kubernetes.virtual_machines.agent.metrics import Tally
from aliquot.kubernetes.virtual_machines.agent.node_report import Standing, Teller
from aliquot.kubernetes.virtual_machines.agent.reconcile import Round, Work

BACKOFF = Backoff(first=0.5, longest=30.0, jitter=(0.8, 1.2))
UNREAD_S = 30.0
"""The watches wake the loop: this long only where they have nothing to tell."""


class Loop:
    """``stand`` says why the agent must keep its hands off now, None where it need not. ``after`` is told of each
    round, of None where nothing was done: plugins and annotations follow it. ``trouble`` is why the last round was not
    finished, "" if it was; ``standing`` how the agent stands.
    """

    def __init__(
        self,
        corner: Corner,
        work: Work,
        teller: Teller,
        tally: Tally,
        *,
        stand: Callable[[], Standing | None],
        after: Callable[[Round | None], Awaitable[None]],
        check_s: float,
    ) -> None:
        self.trouble = ""
        self.standing: Standing | None = None
        self.beat = time.monotonic()
        self._corner = corner
        self._work = work
        self._teller = teller
        self._tally = tally
        self._stand = stand
        self._after = after
        self._check_s = check_s
        self._happened = asyncio.Event()
        self._stopping = False
        self._troubles = 0

    def wake(self) -> None:
        """Something happened; what, the next look finds out."""
        self._happened.set()

    @property
    def stopping(self) -> bool:
        """Whether the loop was asked to end."""
        return self._stopping

    def stop(self) -> None:
        """End after the step that is on."""
        self._stopping = True
        self._happened.set()

    async def run(self) -> None:
        """Until ``stop``. What fails on the way is logged and tried again, later each time."""
        while not self._stopping:
            self.beat = time.monotonic()
            self._happened.clear()
            try:
                pause = await self.cycle()
                self._troubles = 0
            except AliquotError as error:
                pause = self._failed(error)
            except Exception as error:  # noqa: BLE001 -- a defect of ours must not end the agent for all GPUs
                log.exception("internal fault: report this, with the output of: aliquot version")
                pause = self._failed(
                    AliquotError(f"internal fault{_place(error)}: {type(error).__name__}: {error}"[:300])
                )
            if pause and not self._stopping:
                self.beat = time.monotonic() + pause
                await self._rest(pause)

    async def cycle(self) -> float:
        """One look and at most one wish; how long to rest after it, 0 to look again at once."""
        if self._corner.unread:
            self.trouble = self._corner.away or f"{self._corner.unread} were not read yet"
            return UNREAD_S
        if self._corner.node is None:
            self.trouble = f"there is no node {self._corner.name} in this cluster"
            return UNREAD_S
        hands_off = self._stand()
        if hands_off is not None:
            self.trouble = ""
            await self.tell(hands_off, None)
            await self._after(None)
            return self._check_s
        done = await self._work.round()
        self._tally.looked(done.view, done.plans)
        self._tally.objects(self._corner.objects())
        await self.tell(done.standing, done.driver_needed)
        await self._after(done)
        if done.again:
            return 0.0
        self.trouble = done.trouble
        return min(self._check_s, max(0.05, done.wait_s)) if done.wait_s is not None else self._check_s

    async def tell(self, standing: Standing, driver_needed: bool | None) -> None:
        """Write how the agent stands to the node. Raises ApiError."""
        self.standing = standing
        self._tally.state(standing.state)
        await self._teller.node(standing, driver_needed=driver_needed)

    async def report_hang(self, error: DriverHangsError | None) -> None:
        """Report a driver call that hangs, also in the middle of a change, which the loop waits for. What comes after
        it the loop reports itself. Raises ApiError.
        """
        if error is not None and not self._corner.unread:
            await self.tell(Standing(tell.WAITING, DRIVER_HANGS, f"{error.brief} | next: {error.next_step}"), None)

    async def _rest(self, seconds: float) -> None:
        # Not wait_for: in Python 3.11 it loses a cancellation that comes as the event does.
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._happened.wait()

    def _failed(self, error: AliquotError) -> float:
        """The API server, the bus or a defect is in the way of a whole round."""
        self._troubles += 1
        asked = error.retry_after_s if isinstance(error, ApiError) else None
        self.trouble = f"{error.brief}{f' | next: {error.next_step}' if error.next_step else ''}"
        log.warning("%s", self.trouble)
        return BACKOFF.pause(self._troubles, asked or 0.0)


def _place(error: BaseException) -> str:
    """The innermost line of ours in a defect: what a report of it needs most."""
    found, trace = "", error.__traceback__
    while trace is not None:
        path = trace.tb_frame.f_code.co_filename
        if "aliquot" in path:
            found = f" in {path.rpartition('aliquot/')[2]}:{trace.tb_lineno}"
        trace = trace.tb_next
    return found
