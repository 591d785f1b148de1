"""The usage of this node's GPUs through NVML. Reads only, and much less than a read of the inventory.

Memory is read from MIG devices: the compute instances of one GPU instance share its memory, and the first one reports
it. MIG has no utilization rates (NOT_SUPPORTED). There and on whole GPUs, GPM reports them if the GPU supports it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from aliquot.core.model import nvml_return_codes as codes
from aliquot.core.model.profile import ProfileName
from aliquot.core.model.usage import GPM, NVML, Usage
from aliquot.errors import GpuLostError
from aliquot.hardware.nvml.gpm import MIN_INTERVAL_S, Gpm
from aliquot.hardware.nvml.reader import NvmlGpu, NvmlReader

_GONE = (codes.NOT_FOUND, codes.INVALID_ARGUMENT)
_SILENT = (codes.NOT_SUPPORTED, codes.FUNCTION_NOT_FOUND, codes.NO_PERMISSION)


class UsageReader:
    """The usage in one session. A GPU that fell off the bus, and an instance that disappears during the read, are
    omitted.
    """

    def __init__(self, reader: NvmlReader) -> None:
        self._reader = reader
        self._session = reader.session
        self.gpm = Gpm(reader.session)

    def read(self, over_s: float) -> tuple[Usage, ...]:
        """Return the usage of all instances and whole GPUs. ``over_s`` is how many seconds to wait if GPM has no
        previous sample of one; 0 does not wait.
        """
        nvml_gpus = self._reader.present_gpus()
        if over_s > 0 and self._sample(nvml_gpus):
            time.sleep(max(over_s, MIN_INTERVAL_S))
        # Memory of all devices first, and GPM after it (see there).
        found = [
            (nvml_gpu, each) for nvml_gpu, mig in nvml_gpus for each in self._usages(nvml_gpu, partitioned=mig.enabled)
        ]
        self.gpm.keep({(each.gpu, each.instance) for _, each in found})
        return tuple(self._with_share(nvml_gpu, each) for nvml_gpu, each in found)

    def _sample(self, nvml_gpus: tuple[tuple[NvmlGpu, Any], ...]) -> bool:
        """Take a first sample of everything that GPM can measure. Return whether anything was new."""
        new = False
        for nvml_gpu, mig in nvml_gpus:
            if not self.gpm.supported(nvml_gpu.handle, nvml_gpu.pci):
                continue
            ids: list[int | None] = [None]
            if mig.enabled:
                ids = []
                with suppress(GpuLostError):
                    ids = [instance for instance, _ in self._devices(nvml_gpu)]
            for instance in ids:
                if not self.gpm.has_sample((nvml_gpu.pci, instance)):
                    self.gpm.busy_share(nvml_gpu.handle, (nvml_gpu.pci, instance))
                    new = True
        return new

    def _usages(self, nvml_gpu: NvmlGpu, *, partitioned: bool) -> list[Usage]:
        found: list[Usage] = []
        with suppress(GpuLostError):
            if not partitioned:
                used, total = self._memory(nvml_gpu, nvml_gpu.handle)
                found.append(Usage(nvml_gpu.pci, None, "", used, total))
                return found
            for instance, device in self._devices(nvml_gpu):
                code, name = self._session.try_call(self._session.nv.nvmlDeviceGetName, device)
                if code in _GONE:
                    continue
                used, total = self._memory(nvml_gpu, device)
                found.append(Usage(nvml_gpu.pci, instance, _profile(str(name or "")), used, total))
        return found

    def _devices(self, nvml_gpu: NvmlGpu) -> Iterator[tuple[int, Any]]:
        """Return each GPU instance's id with the handle of its first MIG device."""
        session, nv, seen = self._session, self._session.nv, set[int]()
        attempt = f"reading the MIG devices of {nvml_gpu.pci}"
        for index in range(session.call(attempt, nv.nvmlDeviceGetMaxMigDeviceCount, nvml_gpu.handle, gpu=nvml_gpu.pci)):
            code, device = session.try_call(nv.nvmlDeviceGetMigDeviceHandleByIndex, nvml_gpu.handle, index)
            if code in _GONE:
                continue  # positions may be empty, with gaps between them
            if code != codes.SUCCESS:
                raise codes.error(code, attempt, gpu=nvml_gpu.pci)
            code, instance = session.try_call(nv.nvmlDeviceGetGpuInstanceId, device)
            if code == codes.SUCCESS and instance not in seen:
                seen.add(instance)
                yield int(instance), device

    def _memory(self, nvml_gpu: NvmlGpu, handle: Any) -> tuple[int | None, int | None]:
        """Return the used and the total memory in MiB. The second version does not count the driver's reserved memory
        as used.
        """
        nv = self._session.nv
        code, memory = self._session.try_call(nv.nvmlDeviceGetMemoryInfo, handle, version=nv.nvmlMemory_v2)
        if code in (codes.FUNCTION_NOT_FOUND, codes.ARGUMENT_VERSION_MISMATCH):
            code, memory = self._session.try_call(nv.nvmlDeviceGetMemoryInfo, handle)
        if code in (*_SILENT, *_GONE):
            return None, None  # a system on chip has no memory of its own; a guest has no permission
        if code != codes.SUCCESS:
            raise codes.error(code, f"reading the memory in use on {nvml_gpu.pci}", gpu=nvml_gpu.pci)
        return int(memory.used) >> 20, int(memory.total) >> 20

    def _with_share(self, nvml_gpu: NvmlGpu, usage: Usage) -> Usage:
        from msgspec.structs import replace

        if self.gpm.supported(nvml_gpu.handle, nvml_gpu.pci):
            share = self.gpm.busy_share(nvml_gpu.handle, (nvml_gpu.pci, usage.instance))
            if share is not None:
                return replace(usage, compute=share, source=GPM)
        if usage.instance is not None or self.gpm.supported(nvml_gpu.handle, nvml_gpu.pci):
            return usage
        code, rates = self._session.try_call(self._session.nv.nvmlDeviceGetUtilizationRates, nvml_gpu.handle)
        return usage if code != codes.SUCCESS else replace(usage, compute=min(100, rates.gpu) / 100, source=NVML)


def _profile(name: str) -> str:
    """Return the GPU instance's profile from the name of a MIG device: ``... MIG 1c.3g.20gb`` is in a 3g.20gb."""
    printed = name.rpartition(" MIG ")[2]
    try:
        return str(ProfileName.parse(printed).instance)
    except ValueError:
        return printed
