"""The devices agent's loop: observe, update the objects, apply one GPU's desired state, and repeat.

After the last change, the loop waits for an event.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aliquot.errors import AliquotError, DriverHangsError
from aliquot.kubernetes.gpu.reasons import DRIVER_HANGS
from aliquot.kubernetes.node_agent.agent_loop import UNREAD_S, AgentLoop
from aliquot.kubernetes.virtual_machines.agent.informers import NodeDeviceInformers
from aliquot.kubernetes.virtual_machines.agent.metrics import DevicesAgentMetrics
from aliquot.kubernetes.virtual_machines.agent.node_report import DevicesAgentStatus, NodeStatusReporter
from aliquot.kubernetes.virtual_machines.agent.reconciler import Reconciler, RoundResult


class DevicesAgentLoop:
    """The work of each round of ``loop``.

    ``idle_status`` returns why the agent must not act now; None if it may. ``after_round`` gets each round's result,
    None if the agent did nothing. Device plugins and annotations follow it.
    """

    def __init__(
        self,
        loop: AgentLoop,
        informers: NodeDeviceInformers,
        reconciler: Reconciler,
        reporter: NodeStatusReporter,
        metrics: DevicesAgentMetrics,
        *,
        idle_status: Callable[[], DevicesAgentStatus | None],
        after_round: Callable[[RoundResult | None], Awaitable[None]],
        check_s: float,
    ) -> None:
        self.status: DevicesAgentStatus | None = None
        """The status that was reported last."""
        self._loop = loop
        self._informers = informers
        self._reconciler = reconciler
        self._reporter = reporter
        self._metrics = metrics
        self._idle_status = idle_status
        self._after_round = after_round
        self._check_s = check_s

    async def run(self) -> None:
        """Run until the loop is stopped."""
        await self._loop.run(self.cycle, _defect)

    async def cycle(self) -> float:
        """Run one round that applies at most one GPU's desired state.

        Return how long to wait before the next round, in seconds; 0 for no wait.
        """
        if self._informers.unsynced:
            self._loop.error = self._informers.unavailable or f"{self._informers.unsynced} were not read yet"
            return UNREAD_S
        if self._informers.node is None:
            self._loop.error = f"this cluster has no node {self._informers.name}"
            return UNREAD_S
        idle = self._idle_status()
        if idle is not None:
            self._loop.error = ""
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
        self._loop.error = done.error
        return min(self._check_s, max(0.05, done.wait_s)) if done.wait_s is not None else self._check_s

    async def report_status(self, status: DevicesAgentStatus, driver_needed: bool | None) -> None:
        """Write the agent's status to the node. Raise ApiError if that fails."""
        self.status = status
        self._metrics.set_state(status.state)
        await self._reporter.report_status(status, driver_needed=driver_needed)

    async def report_hang(self, error: DriverHangsError | None) -> None:
        """Report a driver call that hangs, also during a change, which the loop waits for.

        The loop itself reports what comes after the hang. Raise ApiError if the write fails.
        """
        if error is not None and not self._informers.unsynced:
            await self.report_status(DevicesAgentStatus("waiting", DRIVER_HANGS, error.one_line), None)


def _defect(error: Exception) -> AliquotError:
    """Return an unexpected exception as the error of a whole round."""
    return AliquotError(f"internal error{_innermost_line(error)}: {type(error).__name__}: {error}"[:300])


def _innermost_line(error: BaseException) -> str:
    """Return the innermost line of Aliquot's code in a traceback, for bug reports."""
    found, trace = "", error.__traceback__
    while trace is not None:
        path = trace.tb_frame.f_code.co_filename
        if "aliquot" in path:
            found = f" in {path.rpartition('aliquot/')[2]}:{trace.tb_lineno}"
        trace = trace.tb_next
    return found
