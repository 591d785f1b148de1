"""The kernel's side of a node: everything of ``engine.ports.Backend`` that no GPU driver's library offers.

Lanes for different GPUs call it at the same time; acts on one GPU come one after the other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING

import msgspec

from aliquot.core.engine.ports import Clock
from aliquot.core.model import vgpu_types as vgpu
from aliquot.core.model.inventory import Gpu, Inventory, VirtualHost
from aliquot.errors import AliquotError, HardwareError, InUseError
from aliquot.foundation.signals import whole
from aliquot.foundation.threads import SystemClock
from aliquot.hardware.kernel.errors import name, refused
from aliquot.hardware.kernel.framework import CURRENT, TYPES
from aliquot.hardware.kernel.host import host, vgpu_driver
from aliquot.hardware.kernel.pci import DEVICES, VFIO, attribute
from aliquot.hardware.kernel.pci import handed_out as lent_gpus
from aliquot.hardware.kernel.reader import Scene, Seen, look
from aliquot.hardware.kernel.sriov_manage import Tools
from aliquot.hardware.kernel.sysfs import Malformed
from aliquot.hardware.kernel.vfio_holders import Holders, Unasked
from aliquot.hardware.kernel.vgpu_owners import Owners
from aliquot.hardware.kernel_files import Files

if TYPE_CHECKING:
    from aliquot.hardware.kernel.driver_types import Memory
    from aliquot.hardware.kernel.vgpus import Vgpus

replace = msgspec.structs.replace
Suspend = Callable[[], AbstractContextManager[None]]
Mixed = Callable[[str], bool | None]


def _cannot_tell(pci: str) -> bool | None:
    return None


class Kernel:
    """``files``: the kernel's files; ``tools``: the driver's programs; ``directory``: where the owner map lies;
    ``boot`` tells the id of this boot; ``say`` gets sentences while something takes long. With ``everything`` the GPUs
    that another driver has, or none, are listed too: whole they can be handed out without NVIDIA's.
    """

    def __init__(
        self,
        files: Files,
        tools: Tools,
        directory: str,
        boot: Callable[[], str],
        *,
        clock: Clock | None = None,
        say: Callable[[str], None] = lambda _: None,
        everything: bool = False,
    ) -> None:
        self.files = files
        self.tools = tools
        self.owners = Owners(directory)
        self._boot = boot
        self._clock = clock or SystemClock()
        self._say = say
        self._everything = everything
        self._directory = directory
        self._turns: defaultdict[str, Lock] = defaultdict(Lock)

    # -- reading

    def read(self, inventory: Inventory, mixed: Mixed = _cannot_tell) -> Inventory:
        """The inventory with the kernel's side of each GPU, and with the GPUs that only the kernel sees. A GPU whose
        files cannot be read keeps what NVML said, with a note; it hides no other.
        """
        scene, faults = self._scene(mixed)
        seen = [self._look(scene, gpu) for gpu in inventory.gpus]
        notes = [note for each in seen for note in each.notes]
        gpus = [each.gpu for each in seen]
        try:
            away, told = self._away(scene, {gpu.pci for gpu in gpus})
            on = host(self.files, self.tools)
        except (OSError, Malformed) as failure:
            away, told, on = (), (f"the kernel cannot be asked about passthrough: {_words(failure)}",), VirtualHost()
        if away:
            gpus = [replace(gpu, index=n) for n, gpu in enumerate(sorted((*gpus, *away), key=lambda g: g.pci))]
        tables = {(t.pci_device, t.subsystem): t for t in (each.table for each in seen) if t is not None}
        return replace(
            inventory,
            gpus=tuple(gpus),
            notes=(*inventory.notes, *faults, *notes, *told),
            vgpu_tables=tuple(tables.values()),
            host=on,
        )

    def read_gpu(self, gpu: Gpu, mixed: Mixed = _cannot_tell) -> Gpu:
        """One GPU with its kernel's side. Raises HardwareError, PermissionDeniedError where that cannot be read."""
        scene, _ = self._scene(mixed)
        return self._sure(scene, gpu).gpu

    def passthrough(self) -> tuple[Gpu, ...]:
        """The GPUs that NVML does not know: vfio-pci has them, or (``everything``) whoever. Raises as ``read_gpu``."""
        scene, _ = self._scene(_cannot_tell)
        try:
            return self._away(scene, set())[0]
        except OSError as failure:
            raise refused(failure, "looking for GPUs in passthrough", DEVICES) from failure
        except Malformed as nonsense:
            raise HardwareError(str(nonsense), next_step="aliquot show") from nonsense

    def _away(self, scene: Scene, known: set[str]) -> tuple[tuple[Gpu, ...], tuple[str, ...]]:
        if not scene.book.handed and not lent_gpus(self.files) and not self._everything:
            return (), ()
        from aliquot.hardware.kernel.passthrough import absent_gpus

        return absent_gpus(scene, known, self._everything)

    def _scene(self, mixed: Mixed) -> tuple[Scene, tuple[str, ...]]:
        book, fault = self.owners.load()
        scene = Scene(self.files, book, self._boot, Holders(self.files), lambda: self._memory, mixed)
        return scene, ((fault,) if fault else ())

    def _look(self, scene: Scene, gpu: Gpu) -> Seen:
        if gpu.lost:
            return Seen(gpu, None, ())
        try:
            return look(scene, gpu)
        except (OSError, Malformed, AliquotError) as failure:
            return Seen(gpu, None, (f"GPU {gpu.pci}: its kernel side cannot be read: {_words(failure)}",))

    def _sure(self, scene: Scene, gpu: Gpu) -> Seen:
        try:
            return look(scene, gpu)
        except OSError as failure:
            raise refused(failure, f"reading the kernel side of {gpu.pci}", f"{DEVICES}/{gpu.pci}") from failure
        except Malformed as nonsense:
            raise HardwareError(str(nonsense), next_step="aliquot show") from nonsense

    # -- acts

    @cached_property
    def _memory(self) -> Memory:
        from aliquot.hardware.kernel.driver_types import Memory

        return Memory(self._directory)

    @cached_property
    def _vgpus(self) -> Vgpus:
        from aliquot.hardware.kernel.vgpus import Vgpus

        return Vgpus(self.files, self.owners, self._boot, self._clock)

    def set_functions(self, gpu: Gpu, count: int, suspend: Suspend = nullcontext) -> None:
        """Switch virtual functions on (``count``) or off (0), and wait until each has its driver. Nothing is switched
        where the kernel has that number, also while the functions still appear: a run that was cut off has begun it.
        ``suspend`` closes our own session with the GPU's driver while it is unbound. Raises InUseError where something
        still is on a virtual function.
        """
        from aliquot.hardware.kernel import sriov
        from aliquot.hardware.kernel import sriov_switch as switching
        from aliquot.hardware.kernel.passthrough import on_record

        with self._acting(gpu.pci):
            now = self._now(gpu).gpu
            if sriov.count(self.files, gpu.pci) != count:
                self._refuse_if_used(now)
                with on_record(self.files, self.owners, now, self._boot()), suspend():
                    switching.switch(self.files, self.tools, self._clock, gpu.pci, count)
                self._vgpus.forget(gpu)
            if count:
                manager = vgpu_driver(self.files) is True
                ready = self._lists_types if manager else lambda function: True
                switching.wait(self.files, self._clock, gpu.pci, count, ready, self._say)

    def create_vgpu(self, gpu: Gpu, function: str, type_id: int, uuid: str) -> None:
        """``gpu`` as NVML reads it now, for its instances. Raises as ``Backend.create_vgpu``."""
        with self._acting(gpu.pci), whole():
            seen = self._now(gpu)
            types = seen.table or vgpu.table(gpu.pci_device, gpu.subsystem)
            self._vgpus.create(seen.gpu, types, function, type_id, uuid)

    def destroy_vgpu(self, gpu: Gpu, function: str, type_id: int, uuid: str, claim: str) -> None:
        """Raises as ``Backend.destroy_vgpu``."""
        with self._acting(gpu.pci), whole():
            self._vgpus.destroy(gpu, function, type_id, uuid, claim)

    def set_passthrough(self, gpu: Gpu, on: bool, function: str = "", suspend: Suspend = nullcontext) -> None:
        """``gpu`` as NVML, or ``passthrough``, reads it now. Raises as ``Backend.set_passthrough``; BlockedError where
        the IOMMU is off or its group holds what is not of the same board.
        """
        from aliquot.hardware.kernel.passthrough import hand_back, hand_out

        quietly = nullcontext if function else suspend
        with self._acting(gpu.pci), whole():
            if not on:
                hand_back(self.files, self.owners, gpu.pci, function, quietly)
                return
            now = gpu if gpu.passthrough else self._now(gpu).gpu
            hand_out(self.files, self.owners, self._clock, now, function, self._boot(), quietly)

    @contextmanager
    def _acting(self, pci: str) -> Iterator[None]:
        """One act at a time on a GPU; whatever else its files refuse meanwhile is an error of ours as well."""
        with self._turns[pci]:
            try:
                yield
            except OSError as failure:
                raise refused(failure, f"working on {pci}", str(failure.filename or f"{DEVICES}/{pci}")) from failure
            except Malformed as nonsense:
                raise HardwareError(str(nonsense), next_step="aliquot show") from nonsense

    def _now(self, gpu: Gpu) -> Seen:
        """A fresh look before an act, without the scan for holders: whoever destroys looks for them apart."""
        scene, _ = self._scene(_cannot_tell)
        return self._sure(replace(scene, holders=Unasked(self.files)), gpu)

    def _refuse_if_used(self, gpu: Gpu) -> None:
        """Nothing may be on a virtual function when their number changes: all of them go. Raises InUseError."""
        functions = gpu.virtual.functions if gpu.virtual is not None else ()
        used = [f"vGPU {v.type} on {v.function}" for v in gpu.vgpus]
        used += [f"{f.pci} is given to {VFIO}" for f in functions if f.driver == VFIO]
        if used:
            raise InUseError(
                f"virtual functions of {gpu.pci} are in use: {used[0]}{' and others' if used[1:] else ''}",
                details=tuple(used),
                next_step=f"aliquot show {gpu.pci}",
            )

    def _lists_types(self, function: str) -> bool:
        return self.files.exists(attribute(function, CURRENT)) or self.files.exists(attribute(function, TYPES))


def _words(failure: Exception) -> str:
    if isinstance(failure, OSError):
        return f"{failure.filename or ''} {name(failure)}".strip()
    return str(failure)
