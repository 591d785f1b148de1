"""GPU worker of an agent: all driver calls run on one thread, which reopens the driver after it went away.

All roles of the agent share it. The event loop never waits for NVML. Only this thread, and those that an apply starts,
call it. A driver call that runs longer than ``HANGS_S`` hangs. Then readers get DriverHangsError, and the thread takes
no other job until the call returns.
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
"""Seconds that a stopping agent waits for a call that only reads."""
REOPEN_S = 600.0
"""Seconds after which NVML is opened again. It counts the GPUs only then, so a hot-plugged GPU appears by this time."""


class GpuWorker:
    """The GPUs of a node.

    ``connect`` opens the node. It is called on the worker thread, and again after each failure that invalidates the
    session. ``unhealthy`` are the UUIDs of devices that must not be allocated. ``past_runs`` are the newest changes of
    the node at the last read, by any program. ``steps`` is called with each step of an apply.

    With ``all_gpus``, a job also sees the GPUs that are not bound to NVIDIA's driver, and runs without a driver if
    ``connect`` can open the node without one.
    """

    def __init__(
        self,
        connect: Callable[[], Connection],
        xids: XidPolicy | None = None,
        steps: StepListener = ignore_step,
        hangs_s: float = driver_calls.HANGS_S,
    ) -> None:
        self._hangs_s = hangs_s
        self._changes = 0
        self._polls = True
        self._smi_noted = False
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
        """Seconds for which the current call has been running; 0 without a call."""
        return time.monotonic() - self._since if self._since is not None else 0.0

    @property
    def _hang(self) -> DriverHangsError | None:
        """The hanging driver call as an error; None if no call hangs."""
        return driver_calls.find_hang(self._hangs_s)

    @property
    def patience_s(self) -> float:
        """Seconds that a stopping agent waits for the current call: a change must roll back, unless its call hangs."""
        return driver_calls.bound_s(self._hangs_s) if self._changes else min(STOP_S, self._hangs_s)

    @property
    def answers(self) -> bool:
        """True if the driver answered the last call."""
        return self._connection is not None

    async def read(self, *, all_gpus: bool = False) -> tuple[Inventory, Facts]:
        """Read inventory and facts.

        Raises NoDriverError without a driver, DriverHangsError while a driver call hangs, and HardwareError if the
        driver fails.
        """
        return await self._run(lambda: self._read(all_gpus))

    async def apply(self, plan: Plan, report: Report, *, all_gpus: bool = False) -> ApplyOutcome:
        """Apply a plan; ``report`` is called on the worker's threads.

        Raises what ``engine.apply`` raises, and DriverHangsError if it cannot begin. If a call hangs in the middle,
        this waits for it (``find_hang`` reports it). The change ends or rolls back once the call returns. Until then,
        paused operands must stay paused.
        """
        self._changes += 1
        try:
            return await self._run(lambda: self._apply(plan, report, all_gpus), patient=True)
        finally:
            self._changes -= 1

    async def watch(self, changed: Callable[[], None]) -> None:
        """Poll the unhealthy devices every ``POLL_S`` seconds, forever.

        ``changed`` is called if they change, if the driver hangs, and when it answers again, whichever job found the
        hang.
        """
        reported = False
        while True:
            await asyncio.sleep(POLL_S)
            unhealthy = self.unhealthy
            try:
                await self._run(self._poll if self._polls else _do_nothing)
                news, reported, self._hung = reported or self._hung, False, False
            except DriverHangsError:
                news, reported = not reported, True
            if news or self.unhealthy != unhealthy:
                changed()

    async def call(self, job: Callable[[Connection], T], *, all_gpus: bool = False) -> T:
        """Run a job that needs the open node."""
        return await self._run(lambda: job(self._open(all_gpus)))

    def latest_inventory(self, connection: Connection) -> Inventory:
        """Read the inventory; return the last one if a read would run more nvidia-smi processes. For a ``job``."""
        from aliquot.hardware.nvidia_smi.backend import SmiBackend

        if not isinstance(connection.nvml, SmiBackend):
            return connection.backend.read()
        if not self._smi_noted:
            log.info("nvidia-smi reports the memory of GPU instances, but not their utilization")
        self._smi_noted = True
        return self._inventory or connection.backend.read()

    async def reopen(self, connect: Callable[[], Connection], *, polls: bool) -> None:
        """Use another access to the driver from now on. What is known of the devices' health stays known.

        ``polls`` is False if a poll each second through this access would cost too much. Raises DriverHangsError while
        a call through the former access hangs; the access then stays.
        """

        def switch() -> None:
            self._close()
            self._connect, self._polls = connect, polls
            self._inventory = None
            self._smi_noted = False

        await self._run(switch)

    async def close(self) -> None:
        """Close the session. If a call hangs, the session ends with the process."""
        with suppress(DriverHangsError):
            await self._run(self._close)
        self._thread.shutdown(wait=False)

    async def _run(self, job: Callable[[], T], *, patient: bool = False) -> T:
        """Run a job on the worker's thread.

        Raises DriverHangsError once a driver call of this or the previous job hangs. A ``patient`` job raises it only
        before it has begun.
        """
        self._check()
        begun = self._thread.submit(self._timed, job)
        future = asyncio.wrap_future(begun)
        try:
            while not (await asyncio.wait((future,), timeout=min(POLL_S, self._hangs_s / 4)))[0]:
                hang = self._hang
                if hang is not None and (not patient or begun.cancel()):
                    self._hung = True
                    raise hang
        finally:
            begun.cancel()  # do not begin the job
            future.cancel()  # or drop its result
        return future.result()

    def _check(self) -> None:
        error = self._hang
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

    def _open(self, all_gpus: bool) -> Connection:
        if self._connection is not None and time.monotonic() - self._opened > REOPEN_S:
            self._close()
        if self._connection is None:
            self._connection = self._connect()
            self._opened = time.monotonic()
            self._health = self._connection.nvml.health(self._xids)
            if self._previous_health is not None:
                self._health.adopt(self._previous_health)
        self._connection.show_all_gpus(all_gpus)
        return self._connection

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        self._health, self._previous_health = None, self._health or self._previous_health
        if connection is not None:
            try:
                connection.close()
            except AliquotError:
                return  # the driver is gone, which is why the session is closed

    def _read(self, all_gpus: bool) -> tuple[Inventory, Facts]:
        connection = self._open(all_gpus)
        backend = connection.backend
        self._inventory = None
        self._inventory = backend.read()
        self._poll()
        if self._newest is None:
            self._newest = RecentRuns(connection.directory)
        self.past_runs = self._newest.runs()
        return self._inventory, backend.facts()

    def _poll(self) -> None:
        """Poll for new Xid errors. A driver that cannot report them must not stop other work."""
        if self._health is None or self._inventory is None or self._connection is None:
            return
        try:
            found = self._health.poll(self._inventory)
        except AliquotError as error:
            if error.brief != self._logged_problem:
                log.warning("the health of the devices cannot be read: %s", error.brief)
            self._logged_problem = error.brief
            return
        for xid in self._health.active_xids if found - self.unhealthy else ():
            log.warning("unhealthy device, not offered to new containers: %s", xid)
        self.unhealthy = found

    def _apply(self, plan: Plan, report: Report, all_gpus: bool) -> ApplyOutcome:
        from aliquot.core.engine.apply import apply

        context = self._open(all_gpus).execution_context(on_step=self._steps)
        self._inventory = None
        outcome = apply(plan, context, report)
        self._forget(plan)
        return outcome

    def _forget(self, plan: Plan) -> None:
        """Forget Xid errors of destroyed instances and reset GPUs, as a new instance may get the same id."""
        for action in plan.actions:
            match action:
                case Destroy() if self._health is not None:
                    self._health.forget(action.gpu, action.instance)
                case Reset() if self._health is not None:
                    self._health.forget(action.gpu)


def _do_nothing() -> None:
    """Take a turn on the worker's thread, to learn whether the driver hangs."""
