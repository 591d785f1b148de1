"""The machine as the devices agent sees it: its PCI bus, which needs no driver, and its GPUs, wherever that is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar

import msgspec

from aliquot.core.engine.history import Past
from aliquot.core.engine.step_timing import Watch, unwatched
from aliquot.core.model.inventory import Inventory
from aliquot.core.model.pci import PciFunction
from aliquot.core.model.plan import Plan
from aliquot.errors import AliquotError, DriverHangsError, NoDriverError
from aliquot.foundation import driver_calls
from aliquot.foundation.logfmt import agent_log as log
from aliquot.hardware.kernel.bus_scan import scan
from aliquot.kubernetes.node_agent.gpu_worker import Hardware
from aliquot.kubernetes.node_agent.pod_holders import Use
from aliquot.kubernetes.virtual_machines.agent.device_offering import mdev_groups
from aliquot.kubernetes.virtual_machines.agent.held_devices import occupied
from aliquot.kubernetes.virtual_machines.agent.retry_state import reason
from aliquot.kubernetes.virtual_machines.harvester.physical_gpus import NO_DRIVER

if TYPE_CHECKING:
    from aliquot.core.engine.context import Outcome
    from aliquot.core.engine.programs import Programs
    from aliquot.hardware.kernel_files import Files
    from aliquot.node.connect import Connection

T = TypeVar("T")


class Way(msgspec.Struct, frozen=True):
    """Where the GPU driver's programs are: ``programs`` None is this machine. ``name`` tells one way from another.
    Where there is none now, ``reason`` and ``trouble`` say why; ``hint`` is what is worth knowing where there turns out
    to be no driver.
    """

    name: str
    programs: Programs | None = None
    reason: str = ""
    trouble: str = ""
    hint: str = ""


class Found(msgspec.Struct, frozen=True):
    """What a look saw. ``inventory`` is None while no driver answers, or has only GPUs that the kernel hands out
    without one; then ``reason`` and ``trouble`` say why.
    """

    functions: tuple[PciFunction, ...]
    inventory: Inventory | None = None
    reason: str = ""
    trouble: str = ""


class Machine:
    """``bus`` opens the kernel's files, ``connect`` the node along a way; both are called on worker threads. ``wake``
    is called when a device has become unfit.
    """

    def __init__(
        self,
        bus: Callable[[], Files],
        connect: Callable[[Programs | None], Connection],
        wake: Callable[[], None],
    ) -> None:
        self._open_bus = bus
        self._connect = connect
        self._wake = wake
        self._files: Files | None = None
        self._way: Way | None = None
        self._hardware: Hardware | None = None
        self._watch: asyncio.Task[None] | None = None
        self._seen: Inventory | None = None
        self._said = False
        self.steps: Watch = unwatched
        self.hangs_s = driver_calls.hangs_s()

    @property
    def hang(self) -> DriverHangsError | None:
        """The driver call that hangs, as an error; None while none does."""
        return driver_calls.hang(self.hangs_s)

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
    def pasts(self) -> tuple[Past, ...]:
        """The newest changes of the node as of the last look, whoever made them."""
        return self._hardware.pasts if self._hardware is not None else ()

    @property
    def answers(self) -> bool:
        """Whether the driver answered when it was last asked."""
        return self._hardware is not None and self._hardware.answers

    async def call(self, job: Callable[[Connection], T]) -> T:
        """Anything else that needs the open node, along the way of the last look. Raises NoDriverError without one."""
        if self._hardware is None:
            raise NoDriverError("the driver has gone away since the look")
        return await self._hardware.call(job)

    def held(self, connection: Connection, uses: Iterable[Use]) -> Inventory:
        """The GPUs with who holds them, for a look at what they are used for. On the worker's thread."""
        return occupied(self._newest(connection), uses)

    def _newest(self, connection: Connection) -> Inventory:
        """A fresh look; the last one where that would run several programs beside the one that tells of use."""
        from aliquot.hardware.nvidia_smi.backend import SmiBackend

        if not isinstance(connection.nvml, SmiBackend):
            return connection.backend.read()
        if not self._said:
            log.info("nvidia-smi tells the memory of GPU instances, and not how busy they are")
        self._said = True
        return self._seen or connection.backend.read()

    async def groups(self, mdevs: Mapping[str, str]) -> dict[str, int]:
        """The IOMMU groups of mdevs, by UUID, from UUID and carrying function."""
        return await asyncio.to_thread(lambda: mdev_groups(self._bus(), mdevs)) if mdevs else {}

    async def look(self, way: Way) -> Found:
        """One look along this way. Raises HardwareError where the PCI bus itself cannot be read: whoever took that for
        an empty bus would delete every object. Raises DriverHangsError while a driver call hangs.
        """
        functions = await asyncio.to_thread(self._scan)
        if way.trouble:
            await self.close()
            return Found(functions, None, way.reason, way.trouble)
        hardware = await self._along(way)
        try:
            self._seen = None
            inventory, _ = await hardware.read()
        except DriverHangsError:
            raise  # no look at all, and no driver that is gone: objects and offers stay as they are
        except AliquotError as error:
            text = ", ".join(filter(None, (error.brief, way.hint if error.code == "NO_DRIVER" else "")))
            step = f" | next: {error.next_step}" if error.next_step else ""
            return Found(functions, None, reason(error), text + step)
        self._seen = inventory
        if inventory.driver:
            return Found(functions, inventory)
        # No driver answers; what the kernel can do without one is there all the same.
        return Found(functions, inventory, NO_DRIVER, ", ".join(filter(None, (*inventory.notes[:1], way.hint))))

    async def apply(self, plan: Plan, report: Callable[[str], None]) -> Outcome:
        """Carries out a plan along the way of the last look. Raises what ``engine.apply`` raises."""
        if self._hardware is None:
            raise NoDriverError("the driver has gone away since the look")
        self._seen = None
        return await self._hardware.apply(plan, report)

    async def close(self) -> None:
        """Lets go of the driver."""
        watch, self._watch = self._watch, None
        hardware, self._hardware = self._hardware, None
        self._way = self._seen = None
        self._said = False
        if watch is not None:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)
        if hardware is not None:
            await hardware.close()

    async def _along(self, way: Way) -> Hardware:
        """The GPUs by this way. A driver's pod that was replaced is another way: what was open ended with it."""
        if self._hardware is not None and self._way is not None and self._way.name == way.name:
            return self._hardware
        await self.close()
        log.info("the GPU driver is used %s", f"in {way.programs.place}" if way.programs else "on this machine")
        hardware = self._hardware = Hardware(
            lambda: self._connect(way.programs), steps=self.steps, hangs_s=self.hangs_s
        )
        self._way = way
        if way.programs is None:  # whoever runs programs in a pod does not do so every second
            self._watch = asyncio.create_task(hardware.watch(self._wake))
        return hardware

    def _scan(self) -> tuple[PciFunction, ...]:
        return scan(self._bus())

    def _bus(self) -> Files:
        if self._files is None:
            self._files = self._open_bus()
        return self._files
