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
from aliquot.kubernetes.virtual_machines.agent import node_report
from aliquot.kubernetes.virtual_machines.agent.informers import NodeDeviceInformers
from aliquot.kubernetes.virtual_machines.agent.metrics import DevicesAgentMetrics
from aliquot.kubernetes.virtual_machines.agent.node_report import DevicesAgentStatus, NodeStatusReporter
from aliquot.kubernetes.virtual_machines.agent.reconciler import Reconciler, RoundResult

BACKOFF = Backoff(first=0.5, longest=30.0, jitter=(0.8, 1.2))
UNREAD_S = 30.0
"""The watches wake the loop: this long only where they have nothing to tell."""


class DevicesAgentLoop:
    """``idle_status`` says why the agent must keep its hands off now, None where it need not. ``after_round`` is told
    of each round, of None where nothing was done: plugins and annotations follow it. ``error`` is why the last round
    was not finished, "" if it was; ``status`` how the agent stands.
    """

    def __init__(
        self,
        informers: NodeDeviceInformers,
        reconciler: Reconciler,
        reporter: NodeStatusReporter,
        metrics: DevicesAgentMetrics,
        *,
        idle_status: Callable[[], DevicesAgentStatus | None],
        after_round: Callable[[RoundResult | None], Awaitable[None]],
        check_s: float,
    ) -> None:
        self.error = ""
        self.status: DevicesAgentStatus | None = None
        self.beat = time.monotonic()
        self._informers = informers
        self._reconciler = reconciler
        self._reporter = reporter
        self._metrics = metrics
        self._idle_status = idle_status
        self._after_round = after_round
        self._check_s = check_s
        self._woken = asyncio.Event()
        self._stopping = False
        self._failures = 0

    def wake(self) -> None:
        """Something happened; what, the next look finds out."""
        self._woken.set()

    @property
    def stopping(self) -> bool:
        """Whether the loop was asked to end."""
        return self._stopping

    def stop(self) -> None:
        """End after the step that is on."""
        self._stopping = True
        self._woken.set()

    async def run(self) -> None:
        """Until ``stop``. What fails on the way is logged and tried again, later each time."""
        while not self._stopping:
            self.beat = time.monotonic()
            self._woken.clear()
            try:
                pause = await self.cycle()
                self._failures = 0
            except AliquotError as error:
                pause = self._back_off(error)
            except Exception as error:  # noqa: BLE001 -- a defect of ours must not end the agent for all GPUs
                log.exception("internal fault: report this, with the output of: aliquot version")
                pause = self._back_off(
                    AliquotError(f"internal fault{_innermost_line(error)}: {type(error).__name__}: {error}"[:300])
                )
            if pause and not self._stopping:
                self.beat = time.monotonic() + pause
                await self._rest(pause)

    async def cycle(self) -> float:
        """One look and at most one wish; how long to rest after it, 0 to look again at once."""
        if self._informers.unsynced:
            self.error = self._informers.unavailable or f"{self._informers.unsynced} were not read yet"
            return UNREAD_S
        if self._informers.node is None:
            self.error = f"there is no node {self._informers.name} in this cluster"
            return UNREAD_S
        idle = self._idle_status()
        if idle is not None:
            self.error = ""
            await self.report_status(idle, None)
            await self._after_round(None)
            return self._check_s
        done = await self._reconciler.reconcile()
        self._metrics.record_observation(done.view, done.plans)
        self._metrics.record_objects(self._informers.objects())
        await self.report_status(done.status, done.driver_needed)
        await self._after_round(done)
        if done.changed:
            return 0.0
        self.error = done.error
        return min(self._check_s, max(0.05, done.wait_s)) if done.wait_s is not None else self._check_s

    async def report_status(self, status: DevicesAgentStatus, driver_needed: bool | None) -> None:
        """Write how the agent stands to the node. Raises ApiError."""
        self.status = status
        self._metrics.set_state(status.state)
        await self._reporter.report_status(status, driver_needed=driver_needed)

    async def report_hang(self, error: DriverHangsError | None) -> None:
        """Report a driver call that hangs, also in the middle of a change, which the loop waits for. What comes after
        it the loop reports itself. Raises ApiError.
        """
        if error is not None and not self._informers.unsynced:
            await self.report_status(
                DevicesAgentStatus(node_report.WAITING, DRIVER_HANGS, f"{error.brief} | next: {error.next_step}"), None
            )

    async def _rest(self, seconds: float) -> None:
        # Not wait_for: in Python 3.11 it loses a cancellation that comes as the event does.
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._woken.wait()

    def _back_off(self, error: AliquotError) -> float:
        """The API server, the bus or a defect is in the way of a whole round."""
        self._failures += 1
        requested_s = error.retry_after_s if isinstance(error, ApiError) else None
        self.error = f"{error.brief}{f' | next: {error.next_step}' if error.next_step else ''}"
        log.warning("%s", self.error)
        return BACKOFF.pause(self._failures, requested_s or 0.0)


def _innermost_line(error: BaseException) -> str:
    """The innermost line of ours in a defect: what a report of it needs most."""
    found, trace = "", error.__traceback__
    while trace is not None:
        path = trace.tb_frame.f_code.co_filename
        if "aliquot" in path:
            found = f" in {path.rpartition('aliquot/')[2]}:{trace.tb_lineno}"
        trace = trace.tb_next
    return found
