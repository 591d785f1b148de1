"""The GPUs as the agent sees them: every call on one worker thread, reopened when the driver went away and came back.

The event loop never waits for NVML, and nothing but this thread, and those that an apply starts, speaks to it. A driver
call that runs for ``HANGS_S`` hangs: who waits for a read gets DriverHangsError, the thread stays with its call, and no
job is given to it until the call returns.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from aliquot.core.engine.history import PastRun
from aliquot.core.engine.step_timing import StepListener, ignore_step
from aliquot.core.model.actions import Destroy, Reset
from aliquot.core.model.facts import Facts
from aliquot.core.model.inventory import Inventory
from aliquot.core.model.plan import Plan
from aliquot.core.model.xids import XidPolicy
from aliquot.errors import AliquotError, DriverHangsError, GpuLostError, HardwareError, NoDriverError
from aliquot.foundation import driver_calls
from aliquot.foundation.callbacks import Report
from aliquot.foundation.logfmt import agent_log as log
from aliquot.hardware.state.journal_follower import RecentRuns

if TYPE_CHECKING:
    from aliquot.core.engine.context import ApplyOutcome
    from aliquot.hardware.nvml.health import Health
    from aliquot.node.connect import Connection

T = TypeVar("T")
POLL_S = 1.0
STOP_S = 5.0
"""How long an agent that is to end waits for a call that only reads."""
REOPEN_S = 600.0
"""NVML counts the GPUs when it is opened: a hot-plugged one shows up no later than this."""


class GpuWorker:
    """One node's GPUs. ``connect`` opens the node; it is called on the worker thread, again after each failure that
    says that the session is no longer worth anything. ``unhealthy`` are the UUIDs that nobody should be given;
    ``past_runs`` are the newest changes of the node as of the last look, whoever made them; ``steps`` is told each step
    of an apply.
    """

    def __init__(
        self,
        connect: Callable[[], Connection],
        xids: XidPolicy | None = None,
        steps: StepListener = ignore_step,
        hangs_s: float = driver_calls.HANGS_S,
    ) -> None:
        self._hangs_s = hangs_s
        self._changing = False
        self._hung = False
        self.unhealthy: frozenset[str] = frozenset()
        self.past_runs: tuple[PastRun, ...] = ()
        self._newest: RecentRuns | None = None
        self._connect = connect
        self._steps = steps
        self._xids = xids or XidPolicy()
        self._health: Health | None = None
        self._previous_health: Health | None = None
        self._inventory: Inventory | None = None
        self._logged_problem = ""
        self._connection: Connection | None = None
        self._opened = 0.0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="gpu")
        self._since: float | None = None

    @property
    def stuck_s(self) -> float:
        """How long the call that runs now has been running; 0 if none does."""
        return time.monotonic() - self._since if self._since is not None else 0.0

    @property
    def hang(self) -> DriverHangsError | None:
        """The driver call that hangs, as an error; None while none does."""
        return driver_calls.find_hang(self._hangs_s)

    @property
    def patience_s(self) -> float:
        """How long an agent that is to end waits for the present call: a change must go back, unless its call hangs."""
        return driver_calls.bound_s(self._hangs_s) if self._changing else min(STOP_S, self._hangs_s)

    @property
    def answers(self) -> bool:
        """Whether the driver answered when it was last asked."""
        return self._connection is not None

    async def read(self) -> tuple[Inventory, Facts]:
        """A fresh look. Raises NoDriverError while there is no driver, DriverHangsError while a call of it hangs,
        HardwareError where it does not answer.
        """
        return await self._run(self._read)

    async def apply(self, plan: Plan, report: Report) -> ApplyOutcome:
        """Carries out a plan; ``report`` is called on the worker's threads. Raises what ``engine.apply`` raises, and
        DriverHangsError where it cannot begin. A call that hangs in the middle is waited for (``find_hang`` tells): the
        change ends, or goes back, once it returns, and what is paused for it must stay so.
        """
        self._changing = True
        try:
            return await self._run(lambda: self._apply(plan, report), patient=True)
        finally:
            self._changing = False

    async def watch(self, changed: Callable[[], None]) -> None:
        """For ever: asks once a second which devices are unfit, and calls ``changed`` when the answer is another, when
        the driver hangs, and when it answers again, whichever job met the hang.
        """
        reported = False
        while True:
            await asyncio.sleep(POLL_S)
            unhealthy = self.unhealthy
            try:
                await self._run(self._poll)
                news, reported, self._hung = reported or self._hung, False, False
            except DriverHangsError:
                news, reported = not reported, True
            if news or self.unhealthy != unhealthy:
                changed()

    async def call(self, job: Callable[[Connection], T]) -> T:
        """Anything else that needs the open node."""
        return await self._run(lambda: job(self._open()))

    async def close(self) -> None:
        """Ends the session, unless a call hangs: then it ends with the process."""
        with suppress(DriverHangsError):
            await self._run(self._close)
        self._thread.shutdown(wait=False)

    async def _run(self, job: Callable[[], T], *, patient: bool = False) -> T:
        """Does a job on the worker's thread. Raises DriverHangsError once a driver call hangs, the job's own or that of
        the one before; ``patient`` only where it has not begun.
        """
        self._check()
        begun = self._thread.submit(self._timed, job)
        future = asyncio.wrap_future(begun)
        try:
            while not (await asyncio.wait((future,), timeout=min(POLL_S, self._hangs_s / 4)))[0]:
                hang = self.hang
                if hang is not None and (not patient or begun.cancel()):
                    self._hung = True
                    raise hang
        finally:
            begun.cancel()  # a job that has not begun never will
            future.cancel()  # the result of one that has is dropped
        return future.result()

    def _check(self) -> None:
        error = self.hang
        if error is not None:
            self._hung = True
            raise error

    def _timed(self, job: Callable[[], T]) -> T:
        self._since = time.monotonic()
        try:
            return job()
        except (NoDriverError, HardwareError) as error:
            if not isinstance(error, GpuLostError):
                self._close()
            raise
        finally:
            self._since = None

    def _open(self) -> Connection:
        if self._connection is not None and time.monotonic() - self._opened > REOPEN_S:
            self._close()
        if self._connection is None:
            self._connection = self._connect()
            self._opened = time.monotonic()
            self._health = self._connection.nvml.health(self._xids)
            if self._previous_health is not None:
                self._health.adopt(self._previous_health)
        return self._connection

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        self._health, self._previous_health = None, self._health or self._previous_health
        if connection is not None:
            try:
                connection.close()
            except AliquotError:
                return  # it is gone already, which is why it is closed

    def _read(self) -> tuple[Inventory, Facts]:
        connection = self._open()
        backend = connection.backend
        self._inventory = backend.read()
        self._poll()
        if self._newest is None:
            self._newest = RecentRuns(connection.directory)
        self.past_runs = self._newest.runs()
        return self._inventory, backend.facts()

    def _poll(self) -> None:
        """Asks for news of faults. A driver that has none to give is no reason to do nothing else."""
        if self._health is None or self._inventory is None or self._connection is None:
            return
        try:
            found = self._health.poll(self._inventory)
        except AliquotError as error:
            if error.brief != self._logged_problem:
                log.warning("no health of devices: %s", error.brief)
            self._logged_problem = error.brief
            return
        for xid in self._health.active_xids if found - self.unhealthy else ():
            log.warning("unfit for new containers: %s", xid)
        self.unhealthy = found

    def _apply(self, plan: Plan, report: Report) -> ApplyOutcome:
        from aliquot.core.engine.apply import apply

        context = self._open().execution_context()
        context.on_step = self._steps
        outcome = apply(plan, context, report)
        self._forget(plan)
        return outcome

    def _forget(self, plan: Plan) -> None:
        """A fault ends with what it concerns, even if something of the same number comes after it."""
        for action in plan.actions:
            match action:
                case Destroy() if self._health is not None:
                    self._health.forget(action.gpu, action.instance)
                case Reset() if self._health is not None:
                    self._health.forget(action.gpu)
