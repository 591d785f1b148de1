"""The kernel's side of a node: the parts of ``engine.ports.Backend`` that no GPU driver library offers. Actions on
different GPUs run in parallel, actions on one GPU run one after the other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING

import msgspec

from aliquot.core.engine.ports import Clock
from aliquot.core.model import vgpu_types as vgpu
from aliquot.core.model.inventory import Gpu, HostVirtualization, Inventory
from aliquot.errors import AliquotError, HardwareError, InUseError
from aliquot.foundation.callbacks import Report
from aliquot.foundation.signals import uninterrupted
from aliquot.foundation.threads import SystemClock
from aliquot.hardware.kernel.errors import errno_name, kernel_file_error
from aliquot.hardware.kernel.framework import CURRENT, TYPES
from aliquot.hardware.kernel.host import read_host, vgpu_driver_loaded
from aliquot.hardware.kernel.pci import DEVICES, VFIO, attribute
from aliquot.hardware.kernel.pci import vfio_gpus as lent_gpus
from aliquot.hardware.kernel.reader import GpuKernelState, KernelReadContext, read_gpu_state
from aliquot.hardware.kernel.sriov_manage import Tools
from aliquot.hardware.kernel.sysfs import MalformedError
from aliquot.hardware.kernel.vfio_holders import Holders, NoHolderScan
from aliquot.hardware.kernel.vgpu_owners import OwnerMapFile, SchedulerRecord
from aliquot.hardware.kernel_files import KernelFiles

if TYPE_CHECKING:
    from aliquot.hardware.kernel.driver_types import LearnedTypes
    from aliquot.hardware.kernel.passthrough import Suspend
    from aliquot.hardware.kernel.vgpus import Vgpus

replace = msgspec.structs.replace
MixedSizeQuery = Callable[[str], bool | None]


def _unknown_mixed_size(pci: str) -> bool | None:
    return None


class Kernel:
    """The kernel's side of a node's GPUs.

    ``files`` are the kernel's files and ``tools`` the driver's programs. The owner map is in ``directory``. ``boot``
    returns the id of this boot. ``report`` receives sentences while an action takes long. ``all_drivers`` also lists
    GPUs that are bound to another driver or to none: passthrough of a whole GPU does not need NVIDIA's driver.
    """

    def __init__(
        self,
        files: KernelFiles,
        tools: Tools,
        directory: str,
        boot: Callable[[], str],
        *,
        clock: Clock | None = None,
        report: Report = lambda _: None,
        all_drivers: bool = False,
    ) -> None:
        self.files = files
        self.tools = tools
        self.owners = OwnerMapFile(directory)
        self._boot = boot
        self._clock = clock or SystemClock()
        self._report = report
        self.all_drivers = all_drivers
        self._directory = directory
        self._gpu_locks: defaultdict[str, Lock] = defaultdict(Lock)

    # -- reading

    def read(self, inventory: Inventory, mixed_size: MixedSizeQuery = _unknown_mixed_size) -> Inventory:
        """Return the inventory with the kernel's side of each GPU, and with the GPUs that only the kernel sees. If the
        files of a GPU cannot be read, it keeps NVML's values and a note is added; the other GPUs are still read.
        """
        context, owner_notes = self._read_context(mixed_size)
        states = [self._read_state(context, gpu) for gpu in inventory.gpus]
        notes = [note for each in states for note in each.notes]
        gpus = [each.gpu for each in states]
        try:
            absent, absent_notes = self._absent_gpus(context, {gpu.pci for gpu in gpus})
            virtualization = read_host(self.files, self.tools)
        except (OSError, MalformedError) as failure:
            absent, virtualization = (), HostVirtualization()
            absent_notes = (f"the kernel's passthrough state cannot be read: {_failure_text(failure)}",)
        if absent:
            gpus = [replace(gpu, index=n) for n, gpu in enumerate(sorted((*gpus, *absent), key=lambda g: g.pci))]
        tables = {(t.pci_device, t.subsystem): t for t in (each.table for each in states) if t is not None}
        return replace(
            inventory,
            gpus=tuple(gpus),
            notes=(*inventory.notes, *owner_notes, *notes, *absent_notes),
            vgpu_tables=tuple(tables.values()),
            host=virtualization,
        )

    def read_gpu(self, gpu: Gpu, mixed_size: MixedSizeQuery = _unknown_mixed_size) -> Gpu:
        """Return one GPU with its kernel's side. Raises HardwareError, PermissionDeniedError if that cannot be read."""
        context, _ = self._read_context(mixed_size)
        return self._read_state_or_raise(context, gpu).gpu

    def passthrough(self) -> tuple[Gpu, ...]:
        """Return the GPUs that NVML does not know: those bound to vfio-pci or, with ``all_drivers``, to any other
        driver or to none. Raises as ``read_gpu``.
        """
        context, _ = self._read_context(_unknown_mixed_size)
        try:
            return self._absent_gpus(context, set())[0]
        except OSError as failure:
            raise kernel_file_error(failure, "finding GPUs in passthrough", DEVICES) from failure
        except MalformedError as malformed:
            raise HardwareError(str(malformed), next_step="aliquot show") from malformed

    def _absent_gpus(self, context: KernelReadContext, known: set[str]) -> tuple[tuple[Gpu, ...], tuple[str, ...]]:
        if not context.owner_map.passthrough and not lent_gpus(self.files) and not self.all_drivers:
            return (), ()
        from aliquot.hardware.kernel.passthrough import absent_gpus

        return absent_gpus(context, known, self.all_drivers)

    def _read_context(self, mixed_size: MixedSizeQuery) -> tuple[KernelReadContext, tuple[str, ...]]:
        owner_map, problem = self.owners.load()
        context = KernelReadContext(
            self.files, owner_map, self._boot, Holders(self.files), lambda: self._learned_types, mixed_size
        )
        return context, ((problem,) if problem else ())

    def _read_state(self, context: KernelReadContext, gpu: Gpu) -> GpuKernelState:
        if gpu.lost:
            return GpuKernelState(gpu, None, ())
        try:
            return read_gpu_state(context, gpu)
        except (OSError, MalformedError, AliquotError) as failure:
            return GpuKernelState(
                gpu, None, (f"GPU {gpu.pci}: its kernel files cannot be read: {_failure_text(failure)}",)
            )

    def _read_state_or_raise(self, context: KernelReadContext, gpu: Gpu) -> GpuKernelState:
        try:
            return read_gpu_state(context, gpu)
        except OSError as failure:
            raise kernel_file_error(
                failure, f"reading the kernel files of {gpu.pci}", f"{DEVICES}/{gpu.pci}"
            ) from failure
        except MalformedError as malformed:
            raise HardwareError(str(malformed), next_step="aliquot show") from malformed

    # -- actions

    @cached_property
    def _learned_types(self) -> LearnedTypes:
        from aliquot.hardware.kernel.driver_types import LearnedTypes

        return LearnedTypes(self._directory)

    @cached_property
    def _vgpus(self) -> Vgpus:
        from aliquot.hardware.kernel.vgpus import Vgpus

        return Vgpus(self.files, self.owners, self._boot, self._clock)

    def set_functions(self, gpu: Gpu, count: int, suspend: Suspend = nullcontext) -> None:
        """Enable ``count`` virtual functions, or disable them with 0, and wait until each is bound to its driver.

        If the kernel already has that number, nothing is written, even while functions still appear: an interrupted run
        has started it. ``suspend`` closes our own session with the GPU's driver while it is unbound. Raises InUseError
        if a virtual function is in use.
        """
        from aliquot.hardware.kernel import sriov
        from aliquot.hardware.kernel import sriov_switch as switching
        from aliquot.hardware.kernel.passthrough import write_ahead_record

        with self._exclusively(gpu.pci):
            current = self._current_state(gpu).gpu
            if sriov.count(self.files, gpu.pci) != count:
                self._refuse_if_used(current)
                with write_ahead_record(self.files, self.owners, current, self._boot()), suspend():
                    switching.set_function_count(self.files, self.tools, self._clock, gpu.pci, count)
                self._vgpus.forget(gpu)
            if count:
                has_vgpu_driver = vgpu_driver_loaded(self.files) is True
                ready = self._lists_types if has_vgpu_driver else lambda function: True
                switching.wait_until_ready(self.files, self._clock, gpu.pci, count, ready, self._report)

    def create_vgpu(self, gpu: Gpu, function: str, type_id: int, uuid: str, parameters: str = "") -> None:
        """Create a vGPU. ``gpu`` is as NVML reads it now, for its instances. Raises as ``Backend.create_vgpu``."""
        with self._exclusively(gpu.pci), uninterrupted():
            state = self._current_state(gpu)
            types = state.table or vgpu.table(gpu.pci_device, gpu.subsystem)
            self._vgpus.create(state.gpu, types, function, type_id, uuid)
            if parameters:
                self._vgpus.set_parameters(gpu, function, uuid, parameters)

    def destroy_vgpu(self, gpu: Gpu, function: str, type_id: int, uuid: str, ownership_token: str) -> None:
        """Destroy a vGPU. Raises as ``Backend.destroy_vgpu``."""
        with self._exclusively(gpu.pci), uninterrupted():
            self._vgpus.destroy(gpu, function, type_id, uuid, ownership_token)

    def set_passthrough(self, gpu: Gpu, on: bool, function: str = "", suspend: Suspend = nullcontext) -> None:
        """Enable or disable passthrough. ``gpu`` is as NVML, or ``passthrough``, reads it now. Raises as
        ``Backend.set_passthrough``, and BlockedError if the IOMMU is off or its group contains a device of another
        board.
        """
        from aliquot.hardware.kernel.passthrough import disable_passthrough, enable_passthrough

        suspend_session = nullcontext if function else suspend
        with self._exclusively(gpu.pci), uninterrupted():
            if not on:
                disable_passthrough(self.files, self.owners, gpu.pci, function, suspend_session)
                return
            current = gpu if gpu.passthrough else self._current_state(gpu).gpu
            enable_passthrough(
                self.files, self.owners, self._clock, current, function, self._boot(), suspend=suspend_session
            )

    def recorded_scheduler(self, uuid: str, instance: int | None = None) -> str:
        """Return the vGPU scheduler that was set on a GPU, or a GPU instance of it, in this boot; "" for none."""
        return self.owners.load()[0].scheduler_of(uuid, self._boot(), instance)

    def record_scheduler(self, uuid: str, scheduler: str, instance: int | None = None) -> None:
        """Record the vGPU scheduler that was set on a GPU, or a GPU instance of it. Raises StorageError."""
        record = SchedulerRecord(uuid, scheduler, self._boot(), instance)
        self.owners.change(lambda owner_map: owner_map.with_scheduler(record))

    @contextmanager
    def _exclusively(self, pci: str) -> Iterator[None]:
        """Run one action at a time on a GPU, and convert errors of its files into errors of this package."""
        with self._gpu_locks[pci]:
            try:
                yield
            except OSError as failure:
                raise kernel_file_error(
                    failure, f"working on {pci}", str(failure.filename or f"{DEVICES}/{pci}")
                ) from failure
            except MalformedError as malformed:
                raise HardwareError(str(malformed), next_step="aliquot show") from malformed

    def _current_state(self, gpu: Gpu) -> GpuKernelState:
        """Read the GPU again before an action, without the scan for holders; destroying a vGPU scans separately."""
        context, _ = self._read_context(_unknown_mixed_size)
        return self._read_state_or_raise(replace(context, holders=NoHolderScan(self.files)), gpu)

    def _refuse_if_used(self, gpu: Gpu) -> None:
        """Raise InUseError if a virtual function is in use: changing their number removes all of them."""
        functions = gpu.virtual.functions if gpu.virtual is not None else ()
        used = [f"vGPU {v.type} on {v.function}" for v in gpu.vgpus]
        used += [f"{f.pci} is bound to {VFIO}" for f in functions if f.driver == VFIO]
        if used:
            raise InUseError(
                f"virtual functions of {gpu.pci} are in use: {used[0]}{' and others' if used[1:] else ''}",
                details=tuple(used),
                next_step=f"aliquot show {gpu.pci}",
            )

    def _lists_types(self, function: str) -> bool:
        return self.files.exists(attribute(function, CURRENT)) or self.files.exists(attribute(function, TYPES))


def _failure_text(failure: Exception) -> str:
    if isinstance(failure, OSError):
        return f"{failure.filename or ''} {errno_name(failure)}".strip()
    return str(failure)
