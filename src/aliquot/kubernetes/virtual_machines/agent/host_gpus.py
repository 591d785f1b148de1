"""The host's PCI bus, which needs no driver, and its GPUs, through the driver in a pod or on the host."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

import msgspec

from aliquot.core.engine.history import PastRun
from aliquot.core.model.actions import SetPassthrough
from aliquot.core.model.inventory import Inventory
from aliquot.core.model.pci import PciFunction
from aliquot.core.model.plan import Plan
from aliquot.errors import AliquotError, DriverHangsError, Message, NoDriverError
from aliquot.foundation.callbacks import Report
from aliquot.foundation.logfmt import agent_log as log
from aliquot.foundation.threads import SystemClock
from aliquot.hardware.kernel.bus_scan import scan
from aliquot.hardware.kernel.function_binding import bind_function, load_vfio, release_function
from aliquot.hardware.kernel.pci import attribute
from aliquot.hardware.kernel.sysfs import link_target
from aliquot.hardware.programs import LocalPrograms
from aliquot.kubernetes.node_agent.gpu_worker import GpuWorker
from aliquot.kubernetes.virtual_machines.agent.retry_state import error_reason
from aliquot.kubernetes.virtual_machines.harvester.other_functions import FunctionBinding
from aliquot.kubernetes.virtual_machines.harvester.reasons import NO_DRIVER, ObjectReason

if TYPE_CHECKING:
    from aliquot.core.engine.context import ApplyOutcome
    from aliquot.core.engine.programs import DriverPrograms
    from aliquot.hardware.kernel.pci_ids import PciNames
    from aliquot.hardware.kernel_files import KernelFiles
    from aliquot.node.connect import Connection


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
    """Access to the host's GPUs, through the worker that all roles of the process share, and to its other functions.

    ``bus`` opens the kernel's files, ``connect`` opens the node through a driver access. Both run on worker threads.
    With ``names``, the names of all vendors' functions, all functions are observed; otherwise only NVIDIA's and their
    IOMMU group peers. ``host_root`` is where the host's root directory is mounted.
    """

    def __init__(
        self,
        bus: Callable[[], KernelFiles],
        worker: GpuWorker,
        connect: Callable[[DriverPrograms | None], Connection],
        names: PciNames | None = None,
        host_root: str = "",
    ) -> None:
        self.all_devices = names is not None
        self._names = names
        self._programs = LocalPrograms(host_root, chroot=True)
        self._open_bus = bus
        self._worker = worker
        self._connect = connect
        self._files: KernelFiles | None = None
        self._location: DriverAccess | None = None

    @property
    def unhealthy(self) -> frozenset[str]:
        """The UUIDs of devices that must not be allocated."""
        return self._worker.unhealthy

    @property
    def pasts(self) -> tuple[PastRun, ...]:
        """The newest changes of the node at the last observation, made by any process."""
        return self._worker.past_runs

    async def groups(self, mdevs: Mapping[str, str]) -> dict[str, int]:
        """Return the IOMMU groups of mdevs by UUID. ``mdevs`` maps each UUID to its virtual function."""
        return await asyncio.to_thread(lambda: _mdev_groups(self._bus(), mdevs)) if mdevs else {}

    async def observe(self, location: DriverAccess) -> HostObservation:
        """Observe the host through this driver access. Raise DriverHangsError while a driver call hangs.

        Raise HardwareError if the PCI bus itself cannot be read: an empty result would delete every object.
        """
        functions = await asyncio.to_thread(self._scan)
        await self._use(location)
        if location.error:
            return HostObservation(functions, None, location.reason, location.error)
        try:
            inventory, _ = await self._worker.read(all_gpus=True)
        except DriverHangsError:
            raise  # nothing was observed, and the driver has not gone: objects and offers stay as they are
        except AliquotError as failure:
            text = ", ".join(filter(None, (failure.brief, location.hint if failure.code == "NO_DRIVER" else "")))
            why = Message(text, failure.next_step or "")
            return HostObservation(functions, None, error_reason(failure), str(why))
        if inventory.driver:
            return HostObservation(functions, inventory)
        # No driver answers; the kernel still shows and binds the functions that need none.
        return HostObservation(
            functions, inventory, NO_DRIVER, ", ".join(filter(None, (*inventory.notes[:1], location.hint)))
        )

    async def apply(self, plan: Plan, report: Report) -> ApplyOutcome:
        """Apply a plan through the access of the last observation. Raises what ``engine.apply`` raises."""
        if any(isinstance(each, SetPassthrough) and each.on for each in plan.actions):
            await asyncio.to_thread(lambda: load_vfio(self._bus(), self._programs))
        return await self._worker.apply(plan, report, all_gpus=True)

    async def bind(self, binding: FunctionBinding, node_addresses: Collection[str]) -> None:
        """Change the driver of a function that is not a GPU. The function with one of the node's addresses is refused.

        Raise InUseError, NoIommuError, BlockedError or HardwareError.
        """
        await asyncio.to_thread(self._bind, binding, node_addresses)

    def _bind(self, binding: FunctionBinding, node_addresses: Collection[str]) -> None:
        if binding.on:
            load_vfio(self._bus(), self._programs)
            bind_function(self._bus(), SystemClock(), binding.address, node_addresses)
        else:
            release_function(self._bus(), binding.address, binding.driver)

    async def _use(self, location: DriverAccess) -> None:
        """Let all roles use this access. A replaced driver pod is another one: its connection ended with it.

        While an access has an error, no role opens a driver: it might be loaded a second time.
        """
        before = self._location
        if before is not None and (before.name, before.error) == (location.name, location.error):
            return

        def open_node() -> Connection:
            if location.error:
                raise NoDriverError(location.error)
            return self._connect(location.programs)

        await self._worker.reopen(open_node, polls=location.programs is None)
        self._location = location
        if not location.error:
            where = f"in {location.programs.location}" if location.programs else "of this host"
            log.info("using the GPU driver %s", where)

    def _scan(self) -> tuple[PciFunction, ...]:
        return scan(self._bus(), self._names, everything=self.all_devices)

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
