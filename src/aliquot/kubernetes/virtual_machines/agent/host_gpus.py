"""The machine as the devices agent sees it: its PCI bus, which needs no driver, and its GPUs, wherever that is."""

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
from aliquot.errors import AliquotError, DriverHangsError, NoDriverError
from aliquot.foundation import driver_calls
from aliquot.foundation.callbacks import Report
from aliquot.foundation.logfmt import agent_log as log
from aliquot.hardware.kernel.bus_scan import scan
from aliquot.hardware.kernel.pci import attribute
from aliquot.hardware.kernel.sysfs import link_target
from aliquot.kubernetes.node_agent.gpu_worker import GpuWorker
from aliquot.kubernetes.node_agent.pod_holders import PodDeviceUse
from aliquot.kubernetes.virtual_machines.agent.held_devices import with_pod_holders
from aliquot.kubernetes.virtual_machines.agent.retry_state import error_reason
from aliquot.kubernetes.virtual_machines.harvester.physical_gpus import NO_DRIVER

if TYPE_CHECKING:
    from aliquot.core.engine.context import ApplyOutcome
    from aliquot.core.engine.programs import DriverPrograms
    from aliquot.hardware.kernel_files import KernelFiles
    from aliquot.node.connect import Connection

T = TypeVar("T")


class DriverAccess(msgspec.Struct, frozen=True):
    """Where the GPU driver's programs are: ``programs`` None is this machine. ``name`` tells one way from another.
    Where there is none now, ``reason`` and ``error`` say why; ``hint`` is what is worth knowing where there turns
    out to be no driver.
    """

    name: str
    programs: DriverPrograms | None = None
    reason: str = ""
    error: str = ""
    hint: str = ""


class HostObservation(msgspec.Struct, frozen=True):
    """What a look saw. ``inventory`` is None while no driver answers, or has only GPUs that the kernel hands out
    without one; then ``reason`` and ``error`` say why.
    """

    functions: tuple[PciFunction, ...]
    inventory: Inventory | None = None
    reason: str = ""
    error: str = ""


class HostGpus:
    """``bus`` opens the kernel's files, ``connect`` the node along a way; both are called on worker threads. ``wake``
    is called when a device has become unfit.
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
        """How long an agent that is to end waits for the present call."""
        return self._hardware.patience_s if self._hardware is not None else 0.0

    @property
    def stuck_s(self) -> float:
        """How long the driver call that runs now has been running; 0 if none does."""
        return self._hardware.stuck_s if self._hardware is not None else 0.0

    @property
    def unhealthy(self) -> frozenset[str]:
        """The UUIDs of devices that nobody should be given."""
        return self._hardware.unhealthy if self._hardware is not None else frozenset()

    @property
    def pasts(self) -> tuple[PastRun, ...]:
        """The newest changes of the node as of the last look, whoever made them."""
        return self._hardware.past_runs if self._hardware is not None else ()

    @property
    def answers(self) -> bool:
        """Whether the driver answered when it was last asked."""
        return self._hardware is not None and self._hardware.answers

    async def call(self, job: Callable[[Connection], T]) -> T:
        """Anything else that needs the open node, along the way of the last look. Raises NoDriverError without one."""
        if self._hardware is None:
            raise NoDriverError("the driver has gone away since the look")
        return await self._hardware.call(job)

    def read_with_holders(self, connection: Connection, uses: Iterable[PodDeviceUse]) -> Inventory:
        """The GPUs with who holds them, for a look at what they are used for. On the worker's thread."""
        return with_pod_holders(self._latest_inventory(connection), uses)

    def _latest_inventory(self, connection: Connection) -> Inventory:
        """A fresh look; the last one where that would run several programs beside the one that tells of use."""
        from aliquot.hardware.nvidia_smi.backend import SmiBackend

        if not isinstance(connection.nvml, SmiBackend):
            return connection.backend.read()
        if not self._notice_logged:
            log.info("nvidia-smi tells the memory of GPU instances, and not how busy they are")
        self._notice_logged = True
        return self._last_inventory or connection.backend.read()

    async def groups(self, mdevs: Mapping[str, str]) -> dict[str, int]:
        """The IOMMU groups of mdevs, by UUID, from UUID and carrying function."""
        return await asyncio.to_thread(lambda: _mdev_groups(self._bus(), mdevs)) if mdevs else {}

    async def observe(self, location: DriverAccess) -> HostObservation:
        """One look along this way. Raises HardwareError where the PCI bus itself cannot be read: whoever took that for
        an empty bus would delete every object. Raises DriverHangsError while a driver call hangs.
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
            raise  # no look at all, and no driver that is gone: objects and offers stay as they are
        except AliquotError as failure:
            text = ", ".join(filter(None, (failure.brief, location.hint if failure.code == "NO_DRIVER" else "")))
            step = f" | next: {failure.next_step}" if failure.next_step else ""
            return HostObservation(functions, None, error_reason(failure), text + step)
        self._last_inventory = inventory
        if inventory.driver:
            return HostObservation(functions, inventory)
        # No driver answers; what the kernel can do without one is there all the same.
        return HostObservation(
            functions, inventory, NO_DRIVER, ", ".join(filter(None, (*inventory.notes[:1], location.hint)))
        )

    async def apply(self, plan: Plan, report: Report) -> ApplyOutcome:
        """Carries out a plan along the way of the last look. Raises what ``engine.apply`` raises."""
        if self._hardware is None:
            raise NoDriverError("the driver has gone away since the look")
        self._last_inventory = None
        return await self._hardware.apply(plan, report)

    async def close(self) -> None:
        """Lets go of the driver."""
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
        """The GPUs by this way. A driver's pod that was replaced is another way: what was open ended with it."""
        if self._hardware is not None and self._location is not None and self._location.name == location.name:
            return self._hardware
        await self.close()
        log.info(
            "the GPU driver is used %s", f"in {location.programs.location}" if location.programs else "on this machine"
        )
        hardware = self._hardware = GpuWorker(
            lambda: self._connect(location.programs), steps=self.steps, hangs_s=self.hangs_s
        )
        self._location = location
        if location.programs is None:  # whoever runs programs in a pod does not do so every second
            self._watch = asyncio.create_task(hardware.watch(self._wake))
        return hardware

    def _scan(self) -> tuple[PciFunction, ...]:
        return scan(self._bus())

    def _bus(self) -> KernelFiles:
        if self._files is None:
            self._files = self._open_bus()
        return self._files


def _mdev_groups(files: KernelFiles, mdevs: Mapping[str, str]) -> dict[str, int]:
    """The IOMMU groups of mdevs, by UUID, from UUID and carrying function. One that has gone meanwhile has none."""
    found = {}
    for uuid, function in mdevs.items():
        try:
            group = link_target(files, f"{attribute(function, uuid)}/iommu_group")
        except OSError:
            continue
        if group.isdecimal():
            found[uuid] = int(group)
    return found
