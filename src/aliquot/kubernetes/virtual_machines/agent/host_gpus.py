"""The host's PCI bus, which needs no driver, and its GPUs, through the driver in a pod or on the host."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar

import msgspec

from aliquot.core.engine.history import PastRun
from aliquot.core.engine.step_timing import StepListener, ignore_step
from aliquot.core.model.inventory import Inventory
from aliquot.core.model.pci import PciFunction
from aliquot.core.model.plan import Plan
from aliquot.errors import AliquotError, DriverHangsError, Message, NoDriverError
from aliquot.foundation import driver_calls
from aliquot.foundation.callbacks import Report
from aliquot.foundation.logfmt import agent_log as log
from aliquot.hardware.kernel.bus_scan import scan
from aliquot.hardware.kernel.pci import attribute
from aliquot.hardware.kernel.sysfs import link_target
from aliquot.kubernetes.node_agent.gpu_worker import GpuWorker
from aliquot.kubernetes.node_agent.held_devices import with_pod_holders
from aliquot.kubernetes.node_agent.pod_holders import PodDeviceUse
from aliquot.kubernetes.virtual_machines.agent.retry_state import error_reason
from aliquot.kubernetes.virtual_machines.harvester.reasons import NO_DRIVER, ObjectReason

if TYPE_CHECKING:
    from aliquot.core.engine.context import ApplyOutcome
    from aliquot.core.engine.programs import DriverPrograms
    from aliquot.hardware.kernel_files import KernelFiles
    from aliquot.node.connect import Connection

T = TypeVar("T")


class DriverAccess(msgspec.Struct, frozen=True):
    """Access to the GPU driver's programs."""

    name: str
    """Identifies the access: a replaced driver pod has another name."""
    programs: DriverPrograms | None = None
    """None for the host's programs."""
    reason: ObjectReason = ""
    """Why no driver is available now."""
    error: str = ""
    """The sentence for ``reason``."""
    hint: str = ""
    """What to add to the error if no driver answers."""


class HostObservation(msgspec.Struct, frozen=True):
    """The result of one observation."""

    functions: tuple[PciFunction, ...]
    inventory: Inventory | None = None
    """None while no driver answers and the kernel offers no GPU for passthrough."""
    reason: ObjectReason = ""
    """Why no driver answers."""
    error: str = ""
    """The sentence for ``reason``."""


class HostGpus:
    """Access to the host's GPUs.

    ``bus`` opens the kernel's files, ``connect`` opens the node through a driver access. Both run on worker threads.
    ``wake`` is called when a device became unhealthy.
    """

    def __init__(
        self,
        bus: Callable[[], KernelFiles],
        connect: Callable[[DriverPrograms | None], Connection],
        wake: Callable[[], None],
    ) -> None:
        self._open_bus = bus
        self._connect = connect
        self._wake = wake
        self._files: KernelFiles | None = None
        self._location: DriverAccess | None = None
        self._hardware: GpuWorker | None = None
        self._watch: asyncio.Task[None] | None = None
        self._last_inventory: Inventory | None = None
        self._notice_logged = False
        self.steps: StepListener = ignore_step
        self.hangs_s = driver_calls.hangs_s()

    @property
    def patience_s(self) -> float:
        """The time that a stopping agent waits for the current driver call, in seconds."""
        return self._hardware.patience_s if self._hardware is not None else 0.0

    @property
    def stuck_s(self) -> float:
        """The time for which the current driver call has been running, in seconds; 0 without one."""
        return self._hardware.stuck_s if self._hardware is not None else 0.0

    @property
    def unhealthy(self) -> frozenset[str]:
        """The UUIDs of devices that must not be allocated."""
        return self._hardware.unhealthy if self._hardware is not None else frozenset()

    @property
    def pasts(self) -> tuple[PastRun, ...]:
        """The newest changes of the node at the last observation, made by any process."""
        return self._hardware.past_runs if self._hardware is not None else ()

    @property
    def answers(self) -> bool:
        """True if the driver answered the last call."""
        return self._hardware is not None and self._hardware.answers

    async def call(self, job: Callable[[Connection], T]) -> T:
        """Run a job on the open node, through the access of the last observation. Raise NoDriverError without one."""
        if self._hardware is None:
            raise NoDriverError("the GPU driver has gone away since the last observation")
        return await self._hardware.call(job)

    def read_with_holders(self, connection: Connection, uses: Iterable[PodDeviceUse]) -> Inventory:
        """Read the GPUs with their holders, for the usage sampler. Runs on the worker's thread."""
        return with_pod_holders(self._latest_inventory(connection), uses)

    def _latest_inventory(self, connection: Connection) -> Inventory:
        """Read the inventory; return the last one if a read would run more nvidia-smi processes beside the usage
        query.
        """
        from aliquot.hardware.nvidia_smi.backend import SmiBackend

        if not isinstance(connection.nvml, SmiBackend):
            return connection.backend.read()
        if not self._notice_logged:
            log.info("nvidia-smi reports the memory of GPU instances, but not their utilization")
        self._notice_logged = True
        return self._last_inventory or connection.backend.read()

    async def groups(self, mdevs: Mapping[str, str]) -> dict[str, int]:
        """Return the IOMMU groups of mdevs by UUID. ``mdevs`` maps each UUID to its virtual function."""
        return await asyncio.to_thread(lambda: _mdev_groups(self._bus(), mdevs)) if mdevs else {}

    async def observe(self, location: DriverAccess) -> HostObservation:
        """Observe the host through this driver access. Raise DriverHangsError while a driver call hangs.

        Raise HardwareError if the PCI bus itself cannot be read: an empty result would delete every object.
        """
        functions = await asyncio.to_thread(self._scan)
        if location.error:
            await self.close()
            return HostObservation(functions, None, location.reason, location.error)
        hardware = await self._open(location)
        try:
            self._last_inventory = None
            inventory, _ = await hardware.read()
        except DriverHangsError:
            raise  # nothing was observed, and the driver has not gone: objects and offers stay as they are
        except AliquotError as failure:
            text = ", ".join(filter(None, (failure.brief, location.hint if failure.code == "NO_DRIVER" else "")))
            why = Message(text, failure.next_step or "")
            return HostObservation(functions, None, error_reason(failure), str(why))
        self._last_inventory = inventory
        if inventory.driver:
            return HostObservation(functions, inventory)
        # No driver answers; the kernel still shows and binds the functions that need none.
        return HostObservation(
            functions, inventory, NO_DRIVER, ", ".join(filter(None, (*inventory.notes[:1], location.hint)))
        )

    async def apply(self, plan: Plan, report: Report) -> ApplyOutcome:
        """Apply a plan through the access of the last observation. Raises what ``engine.apply`` raises."""
        if self._hardware is None:
            raise NoDriverError("the GPU driver has gone away since the last observation")
        self._last_inventory = None
        return await self._hardware.apply(plan, report)

    async def close(self) -> None:
        """Close the connection to the driver."""
        watch, self._watch = self._watch, None
        hardware, self._hardware = self._hardware, None
        self._location = self._last_inventory = None
        self._notice_logged = False
        if watch is not None:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)
        if hardware is not None:
            await hardware.close()

    async def _open(self, location: DriverAccess) -> GpuWorker:
        """Open the GPUs through this access. A replaced driver pod is another access, and its connection ended with
        it.
        """
        if self._hardware is not None and self._location is not None and self._location.name == location.name:
            return self._hardware
        await self.close()
        log.info("using the GPU driver %s", f"in {location.programs.location}" if location.programs else "of this host")
        hardware = self._hardware = GpuWorker(
            lambda: self._connect(location.programs), steps=self.steps, hangs_s=self.hangs_s
        )
        self._location = location
        if location.programs is None:  # polling every second through programs in a pod would cost too much
            self._watch = asyncio.create_task(hardware.watch(self._wake))
        return hardware

    def _scan(self) -> tuple[PciFunction, ...]:
        return scan(self._bus())

    def _bus(self) -> KernelFiles:
        if self._files is None:
            self._files = self._open_bus()
        return self._files


def _mdev_groups(files: KernelFiles, mdevs: Mapping[str, str]) -> dict[str, int]:
    """Return the IOMMU groups of mdevs by UUID, without mdevs that no longer exist."""
    found = {}
    for uuid, function in mdevs.items():
        try:
            group = link_target(files, f"{attribute(function, uuid)}/iommu_group")
        except OSError:
            continue
        if group.isdecimal():
            found[uuid] = int(group)
    return found
