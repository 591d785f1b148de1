"""The real backend: a node's GPUs through NVML. With ``library`` it drives a simulated node's shim with the same code.

Implements ``engine.ports.Backend``. Each NVML return code becomes one clear error (``codes``). Handles are fetched
again after a mode change and after a reset, because NVML says that they and the minor number may change.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import byref
from typing import TYPE_CHECKING, Any

from aliquot.core.model import nvml_return_codes as codes
from aliquot.core.model.inventory import Gpu, Inventory
from aliquot.errors import AliquotError, HardwareError
from aliquot.hardware.nvml.binding import library_below
from aliquot.hardware.nvml.reader import NvmlReader
from aliquot.hardware.nvml.session import NvmlSession

if TYPE_CHECKING:
    from aliquot.core.model.facts import Facts
    from aliquot.core.model.usage import Usage
    from aliquot.core.model.vgpu_usage import VgpuUsage
    from aliquot.core.model.xids import XidPolicy
    from aliquot.hardware.nvml.describe import GpuDescription
    from aliquot.hardware.nvml.health import Health
    from aliquot.hardware.nvml.usage import UsageReader
    from aliquot.hardware.nvml.vgpu_usage import VgpuUsageReader


class NvmlBackend:
    """The GPUs of one node.

    ``library`` is the NVML library to load (a simulated node's shim). ``driver_root`` contains the driver's files, if
    not ``/`` (driver container). ``proc_root`` is ``/proc``, or None for a simulated node, whose kernel is not this
    one. ``sys_root`` is ``/sys``, which is not read for such a node.
    """

    def __init__(
        self,
        library: str | None = None,
        node: str = "localhost",
        proc_root: str | None = "/proc",
        driver_root: str | None = None,
        sys_root: str = "/sys",
    ) -> None:
        if library is None and driver_root not in (None, "", "/"):
            library = library_below(str(driver_root))
        self.node = node
        self.session = NvmlSession(library)
        self._reader = NvmlReader(self.session, proc_root)
        self._sys_root = sys_root if proc_root is not None else None
        self._usage: UsageReader | None = None
        self._vgpu_usage: VgpuUsageReader | None = None

    @property
    def calls(self) -> int:
        """The number of NVML calls so far."""
        return self.session.calls

    def read(self) -> Inventory:
        with self.session.gate.use():
            gpus, remarks = self._reader.gpus()
            return Inventory(
                node=self.node,
                gpus=gpus,
                driver=self.session.driver,
                nvml=self.session.nvml,
                tables=self._reader.tables.changed(),
                notes=self._reader.tables.notes() + remarks,
            )

    def read_gpu(self, pci: str) -> Gpu:
        with self.session.gate.use():
            return self._reader.gpu(pci)

    def facts(self) -> Facts:
        from aliquot.hardware.nvml.facts import read_facts

        with self.session.gate.use():
            return read_facts(self._reader, self._sys_root)

    def usage(self, over_s: float = 0.0) -> tuple[Usage, ...]:
        from aliquot.hardware.nvml.usage import UsageReader

        with self.session.gate.use():
            self._usage = self._usage or UsageReader(self._reader)
            return self._usage.read(over_s)

    def vgpu_usage(self) -> tuple[VgpuUsage, ...]:
        from aliquot.hardware.nvml.vgpu_usage import VgpuUsageReader

        with self.session.gate.use():
            self._vgpu_usage = self._vgpu_usage or VgpuUsageReader(self._reader)
            return self._vgpu_usage.read()

    def set_mode(self, pci: str, enabled: bool) -> bool:
        nv, wanted = self.session.nv, int(enabled)
        attempt = f"{'enabling' if enabled else 'disabling'} MIG mode on {pci}"
        with self.session.gate.use(), self.session.quiet():
            handle = self._reader.handle(pci)
            activation = self.session.call(attempt, nv.nvmlDeviceSetMigMode, handle, wanted, gpu=pci)
            self._reader.forget(pci)
            handle = self._reader.handle(pci)
            current, pending = self.session.call(attempt, nv.nvmlDeviceGetMigMode, handle, gpu=pci)
        # The call returns SUCCESS when the request is stored, and a second value says whether it took effect. Only the
        # GPU's state afterwards proves it: a driver that ignored the request shows neither.
        if current != wanted and pending != wanted:
            raise codes.error(activation, attempt, gpu=pci)
        return bool(current == wanted)

    def create_gpu_instance(self, pci: str, profile_id: int, start: int, size: int) -> int:
        nv = self.session.nv
        attempt = f"creating a GPU instance of profile {profile_id} at {start}:{size} on {pci}"
        with self.session.gate.use():
            handle = self._reader.handle(pci)
            # byref: pynvml passes its argument through unchanged, and a structure by value ends the process.
            placement = byref(nv.c_nvmlGpuInstancePlacement_t(start, size))
            create = nv.nvmlDeviceCreateGpuInstanceWithPlacement
            instance = self.session.call(attempt, create, handle, profile_id, placement, gpu=pci)
            return int(self.session.call(attempt, nv.nvmlGpuInstanceGetInfo, instance, gpu=pci).id)

    def destroy_gpu_instance(self, pci: str, instance: int) -> None:
        attempt = f"destroying GPU instance {instance} on {pci}"
        with self.session.gate.use():
            handle = self._instance(attempt, pci, instance)
            self.session.call(attempt, self.session.nv.nvmlGpuInstanceDestroy, handle, gpu=pci)

    def create_compute_instance(self, pci: str, instance: int, profile_id: int, start: int | None, size: int) -> int:
        nv = self.session.nv
        where = "" if start is None else f" at {start}:{size}"
        attempt = f"creating a compute instance of profile {profile_id}{where} in GPU instance {instance} on {pci}"
        with self.session.gate.use():
            handle = self._instance(attempt, pci, instance)
            if start is None:
                create = nv.nvmlGpuInstanceCreateComputeInstance
                created = self.session.call(attempt, create, handle, profile_id, gpu=pci)
            else:
                create = nv.nvmlGpuInstanceCreateComputeInstanceWithPlacement
                placement = byref(nv.c_nvmlComputeInstancePlacement_t(start, size))
                created = self.session.call(attempt, create, handle, profile_id, placement, gpu=pci)
            return int(self.session.call(attempt, nv.nvmlComputeInstanceGetInfo_v2, created, gpu=pci).id)

    def destroy_compute_instance(self, pci: str, instance: int, compute_instance: int) -> None:
        nv = self.session.nv
        attempt = f"destroying compute instance {compute_instance} of GPU instance {instance} on {pci}"
        with self.session.gate.use():
            gi = self._instance(attempt, pci, instance)
            by_id = nv.nvmlGpuInstanceGetComputeInstanceById
            handle = self.session.call(attempt, by_id, gi, compute_instance, gpu=pci)
            self.session.call(attempt, nv.nvmlComputeInstanceDestroy, handle, gpu=pci)

    def mixed_size(self, pci: str) -> bool | None:
        """Return whether mixed-size mode is on; None if the GPU does not support it in its current mode."""
        with self.session.gate.use():
            code, mode = self.session.try_call(
                self.session.nv.nvmlDeviceGetVgpuHeterogeneousMode, self._reader.handle(pci)
            )
        return bool(mode) if code == codes.SUCCESS else None

    def set_mixed_size(self, pci: str, on: bool) -> None:
        attempt = f"{'enabling' if on else 'disabling'} mixed-size mode on {pci}"
        nv = self.session.nv
        gpu = self.read_gpu(pci)
        with self.session.gate.use():
            if not gpu.mig.enabled:
                handle = self._reader.handle(pci)
                self.session.call(attempt, nv.nvmlDeviceSetVgpuHeterogeneousMode, handle, int(on), gpu=pci)
                return
            for each in (i for i in gpu.instances if bool(i.mixed_size) != on):
                inside = self._instance(attempt, pci, each.id)
                self.session.call(attempt, nv.nvmlGpuInstanceSetVgpuHeterogeneousMode, inside, int(on), gpu=pci)

    def scheduler(self, pci: str) -> str:
        from aliquot.hardware.nvml.vgpu_scheduler import read_scheduler

        with self.session.gate.use():
            return read_scheduler(self.session, self._reader.handle(pci))

    def set_scheduler(self, pci: str, scheduler: str) -> None:
        from aliquot.hardware.nvml.vgpu_scheduler import write_scheduler

        with self.session.gate.use():
            write_scheduler(self.session, self._reader.handle(pci), pci, scheduler)

    def set_instance_scheduler(self, pci: str, instance: int, scheduler: str) -> None:
        from aliquot.hardware.nvml.vgpu_scheduler import write_instance_scheduler

        attempt = f"setting the vGPU scheduler {scheduler} on GPU instance {instance} of {pci}"
        with self.session.gate.use():
            handle = self._instance(attempt, pci, instance)
            write_instance_scheduler(self.session, handle, attempt, pci, scheduler)

    def renumber(self) -> None:
        """Forget values that are cached by index: GPUs have appeared or disappeared."""
        self._reader.renumber()

    def describe(self, pci: str) -> GpuDescription:
        """Return the driver's own tables of a GPU, for ``record``. Reads only."""
        from aliquot.hardware.nvml.describe import describe

        with self.session.gate.use():
            return describe(self._reader, pci)

    @contextmanager
    def suspend(self) -> Iterator[None]:
        with self.session.gate.suspended():
            yield

    def health(self, policy: XidPolicy) -> Health:
        """Return a watcher of the GPUs' XIDs, which begins with its first poll."""
        from aliquot.hardware.nvml.events import NvmlEvents
        from aliquot.hardware.nvml.health import Health

        return Health(NvmlEvents(self.session), policy)

    def close(self) -> None:
        try:
            self.session.close()
        except HardwareError:
            # The work is done and proven; a driver that cannot shut down a session changes nothing.
            return

    def _instance(self, attempt: str, pci: str, instance: int) -> Any:
        nv = self.session.nv
        handle = self._reader.handle(pci)
        return self.session.call(attempt, nv.nvmlDeviceGetGpuInstanceById, handle, instance, gpu=pci)


def unavailable_reason(driver_root: str | None = None) -> AliquotError | None:
    """Return why NVML cannot be used on this host, or None if it can. Opens and closes a session."""
    try:
        NvmlBackend(driver_root=driver_root).close()
    except AliquotError as error:
        return error
    return None
