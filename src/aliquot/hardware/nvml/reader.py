"""Reading GPUs through NVML: identity, MIG mode, lost GPUs. ``instances`` reads what is on each GPU."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec

from aliquot.core.model import nvml_return_codes as codes
from aliquot.core.model.ids import packed_pci_id, pci_address
from aliquot.core.model.inventory import Gpu, Mig, MigMode
from aliquot.errors import GpuLostError, HardwareError
from aliquot.hardware.nvml.capability_minors import CapabilityFiles
from aliquot.hardware.nvml.instances import Instances, distinct
from aliquot.hardware.nvml.session import NvmlSession
from aliquot.hardware.nvml.tables import SessionSource, Tables

_PASSTHROUGH = 1
_MAX_READS = 20
"""Number of attempts to read a GPU that changes meanwhile."""
_MODES: tuple[MigMode, ...] = ("disabled", "enabled")


class NvmlGpu(msgspec.Struct):
    """The properties of a GPU that do not change while its handle is valid."""

    handle: Any
    pci: str
    uuid: str
    index: int
    product: str
    pci_device: str
    subsystem: str
    resettable: bool


class NvmlReader:
    """Reads GPUs. ``proc_root`` is None for a simulated node, which has no kernel files."""

    def __init__(self, session: NvmlSession, proc_root: str | None) -> None:
        self.session = session
        self.tables = Tables(SessionSource(session))
        self._nvml_gpus: dict[str, NvmlGpu] = {}
        self._pci_by_index: dict[int, str] = {}
        self._epoch = 0
        self._instances = Instances(session)
        self._capabilities = CapabilityFiles(proc_root)

    # -- handles

    def forget(self, pci: str) -> None:
        """Fetch that GPU's handle again next time."""
        self._nvml_gpus.pop(pci, None)

    def renumber(self) -> None:
        """Forget all handles and indexes."""
        self._nvml_gpus.clear()
        self._pci_by_index.clear()

    def handle(self, pci: str) -> Any:
        """Return the GPU's NVML handle."""
        return self._nvml_gpu(pci).handle

    def _nvml_gpu(self, pci: str) -> NvmlGpu:
        self._drop_stale()
        nvml_gpu = self._nvml_gpus.get(pci)
        if nvml_gpu is None:
            nv = self.session.nv
            by_address = nv.nvmlDeviceGetHandleByPciBusId
            handle = self.session.call(f"looking for GPU {pci}", by_address, pci, gpu=pci)
            index = next((i for i, known in self._pci_by_index.items() if known == pci), -1)
            if index < 0:
                index = self.session.call(f"reading the index of {pci}", nv.nvmlDeviceGetIndex, handle, gpu=pci)
            nvml_gpu = self._nvml_gpus[pci] = self._identify(handle, index)
        return nvml_gpu

    def _drop_stale(self) -> None:
        if self._epoch != self.session.epoch:
            self._nvml_gpus.clear()
            self._epoch = self.session.epoch

    def _identify(self, handle: Any, index: int) -> NvmlGpu:
        nv, call = self.session.nv, self.session.call
        info = call(f"reading the PCI address of GPU {index}", nv.nvmlDeviceGetPciInfo, handle)
        bus_id = info.busId.decode() if isinstance(info.busId, bytes) else info.busId
        pci = pci_address(bus_id)
        _, virtual = self.session.try_call(nv.nvmlDeviceGetVirtualizationMode, handle)
        nvml_gpu = NvmlGpu(
            handle=handle,
            pci=pci,
            uuid=call(f"reading the UUID of {pci}", nv.nvmlDeviceGetUUID, handle, gpu=pci),
            index=index,
            product=call(f"reading the name of {pci}", nv.nvmlDeviceGetName, handle, gpu=pci),
            pci_device=packed_pci_id(info.pciDeviceId),
            subsystem=packed_pci_id(info.pciSubSystemId),
            # A GPU passed through to this VM is reset with the VM, usually not by the guest.
            resettable=virtual != _PASSTHROUGH,
        )
        self._pci_by_index[index] = pci
        return nvml_gpu

    # -- GPUs

    def present_gpus(self) -> tuple[tuple[NvmlGpu, Mig], ...]:
        """Return all GPUs that are still on the bus, in NVML's order, with their MIG modes."""
        self._drop_stale()
        count = self.session.call("counting the GPUs", self.session.nv.nvmlDeviceGetCount)
        return tuple(known for known in map(self._survey, range(count)) if known is not None)

    def gpus(self) -> tuple[tuple[Gpu, ...], tuple[str, ...]]:
        """Return all GPUs in NVML's order, and notes. A GPU that fell off the bus does not hide the others."""
        self._drop_stale()
        count = self.session.call("counting the GPUs", self.session.nv.nvmlDeviceGetCount)
        modes = [self._survey(index) for index in range(count)]
        # MIG GPUs first: only they list placements, and each product's table is read once.
        for nvml_gpu, mig in sorted((m for m in modes if m is not None), key=lambda m: not m[1].enabled):
            with suppress(GpuLostError):  # fell off the bus just now: the second read below reports it
                self.tables.for_gpu(nvml_gpu, mig)
        found: list[Gpu] = []
        for index, known in enumerate(modes):
            try:
                found.append(self._lost(index) if known is None else self._read(*known))
            except GpuLostError:
                found.append(self._lost(index))
        return tuple(self._name_lost(found)), self._capabilities.remarks(found)

    def gpu(self, pci: str) -> Gpu:
        """Read one GPU again. Raises GpuLostError."""
        nvml_gpu = self._nvml_gpu(pci)
        return self._read(nvml_gpu, self._mode(nvml_gpu))

    def _survey(self, index: int) -> tuple[NvmlGpu, Mig] | None:
        """Return the GPU at an index and its MIG mode; None if it fell off the bus."""
        try:
            pci = self._pci_by_index.get(index, "")
            nvml_gpu = self._nvml_gpus.get(pci)
            if nvml_gpu is None:
                by_index = self.session.nv.nvmlDeviceGetHandleByIndex
                nvml_gpu = self._identify(self.session.call(f"opening GPU {index}", by_index, index, gpu=pci), index)
                self._nvml_gpus[nvml_gpu.pci] = nvml_gpu
            return nvml_gpu, self._mode(nvml_gpu)
        except GpuLostError:
            return None

    def _mode(self, nvml_gpu: NvmlGpu) -> Mig:
        code, answer = self.session.try_call(self.session.nv.nvmlDeviceGetMigMode, nvml_gpu.handle)
        if code == codes.NOT_SUPPORTED:
            return Mig()  # not capable
        if code != codes.SUCCESS:
            raise codes.error(code, f"reading the MIG mode of {nvml_gpu.pci}", gpu=nvml_gpu.pci)
        return Mig(True, _MODES[answer[0]], _MODES[answer[1]])

    def _read(self, nvml_gpu: NvmlGpu, mig: Mig) -> Gpu:
        nv, pci = self.session.nv, nvml_gpu.pci
        code, minor = self.session.try_call(nv.nvmlDeviceGetMinorNumber, nvml_gpu.handle)
        if code == codes.GPU_IS_LOST:
            raise codes.error(code, f"reading the minor number of {pci}", gpu=pci)
        table = self.tables.for_gpu(nvml_gpu, mig)
        bare = Gpu(
            pci=pci,
            uuid=nvml_gpu.uuid,
            index=nvml_gpu.index,
            product=nvml_gpu.product,
            pci_device=nvml_gpu.pci_device,
            subsystem=nvml_gpu.subsystem,
            minor=-1 if minor is None else minor,  # WSL and some guests have no device file
            family=None if table is None else table.name,
            mig=mig,
            resettable=nvml_gpu.resettable,
        )
        for attempt in range(_MAX_READS):
            processes = self._instances.processes(nvml_gpu.handle, pci)
            if not mig.enabled or table is None:
                break
            try:
                return self._instances.fill(bare, nvml_gpu.handle, table, processes)
            except HardwareError as error:
                # Another program destroyed an instance after it was listed: read again.
                gone = error.nvml_code in (codes.INVALID_ARGUMENT, codes.NOT_FOUND)
                if not gone or attempt == _MAX_READS - 1:
                    raise
        return msgspec.structs.replace(bare, holders=distinct(h for _, _, h in processes or ()))

    def _lost(self, index: int) -> Gpu:
        """Return a GPU that fell off the bus, with what is known from this session or from the kernel's list."""
        pci = self._pci_by_index.get(index, "")
        nvml_gpu = self._nvml_gpus.get(pci)
        if nvml_gpu is None:
            return Gpu(pci=pci, uuid="", index=index, product="GPU that fell off the bus", lost=True)
        return Gpu(
            pci=pci,
            uuid=nvml_gpu.uuid,
            index=index,
            product=nvml_gpu.product,
            pci_device=nvml_gpu.pci_device,
            subsystem=nvml_gpu.subsystem,
            lost=True,
        )

    def _name_lost(self, gpus: list[Gpu]) -> list[Gpu]:
        """Return the GPUs with addresses for lost ones that NVML no longer names: those that the kernel lists and NVML
        does not.
        """
        nameless = [n for n, gpu in enumerate(gpus) if not gpu.pci]
        if nameless:
            listed = [pci for pci in self._capabilities.gpus() if all(pci != gpu.pci for gpu in gpus)]
            exact = len(listed) == len(nameless)
            for place, n in enumerate(nameless):
                pci = listed[place] if exact else f"lost-{gpus[n].index}"
                gpus[n] = msgspec.structs.replace(gpus[n], pci=pci)
        return gpus
