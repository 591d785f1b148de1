"""Facts besides the geometry, through NVML, and through sysfs for the location in the host.

Each GPU and each MIG device is read separately: one that falls off the bus or is destroyed meanwhile is omitted.
Sources: nvml.h for the calls; the class and ``numa_node`` files of PCI devices in sysfs; DMI for the host.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from ctypes import byref
from typing import Any

from aliquot.core.model import nvml_return_codes as codes
from aliquot.core.model.facts import BRANDS, Facts, GpuFacts, MigDevice
from aliquot.errors import GpuLostError
from aliquot.hardware.nvml.reader import NvmlGpu, NvmlReader
from aliquot.hardware.nvml.session import NvmlSession

_VGA = 0x0300
_FABRIC_COMPLETED = 3
_VGPU_GUEST = 2
_AFFINITY_WORDS = 16
_SCOPE_NODE = 0
_ADDRESSING_MODES = {0: "None", 1: "HMM", 2: "ATS"}
"""NVML_DEVICE_ADDRESSING_MODE_* of nvml.h. The call is new in R580, and older bindings lack it."""
_PCIE_ROOT = re.compile(r"/(pci[0-9a-f]{4}:[0-9a-f]{2})(?:/|$)")


def read_facts(reader: NvmlReader, sys_root: str | None) -> Facts:
    """Read the facts of all GPUs. ``sys_root`` is ``/sys``, or None if the GPUs are not in this host (a simulated
    node).
    """
    session = reader.session
    gpus: list[GpuFacts] = []
    devices: list[MigDevice] = []
    for nvml_gpu, mig in reader.present_gpus():
        with suppress(GpuLostError):
            gpu = _gpu(reader, nvml_gpu, sys_root)
            mig_devices = tuple(_mig_devices(reader, nvml_gpu)) if mig.enabled else ()
            gpus.append(gpu)
            devices += mig_devices
    cuda = int(_query(session, "reading the CUDA version", session.nv.nvmlSystemGetCudaDriverVersion_v2) or 0)
    return Facts(
        driver=session.driver,
        cuda=(cuda // 1000, cuda % 1000 // 10),
        gpus=tuple(gpus),
        mig_devices=tuple(devices),
        host_product=_host_product(sys_root),
    )


def _query(session: NvmlSession, attempt: str, function: Any, *arguments: Any, gpu: str = "") -> Any:
    """Return an answer, or None if this GPU or driver does not support the question."""
    code, answer = session.try_call(function, *arguments)
    if code in (codes.SUCCESS, codes.NOT_SUPPORTED, codes.FUNCTION_NOT_FOUND, codes.LIBRARY_NOT_FOUND):
        return answer
    raise codes.error(code, attempt, gpu=gpu)


def _gpu(reader: NvmlReader, nvml_gpu: NvmlGpu, sys_root: str | None) -> GpuFacts:
    session, nv, pci = reader.session, reader.session.nv, nvml_gpu.pci
    memory = _query(session, f"reading the memory of {pci}", nv.nvmlDeviceGetMemoryInfo, nvml_gpu.handle, gpu=pci)
    capability = nv.nvmlDeviceGetCudaComputeCapability
    _, virtual = session.try_call(nv.nvmlDeviceGetVirtualizationMode, nvml_gpu.handle)
    compute_capability = _query(
        session, f"reading the compute capability of {pci}", capability, nvml_gpu.handle, gpu=pci
    )
    return GpuFacts(
        pci=pci,
        memory_mib=int(memory.total) >> 20 if memory is not None else 0,  # a system on chip has no memory of its own
        compute_capability=compute_capability or (0, 0),
        numa_node=_numa_node(reader, nvml_gpu, sys_root),
        display=_pci_class(reader, nvml_gpu, sys_root) == _VGA,
        clique=_clique(reader, nvml_gpu),
        vgpu=virtual == _VGPU_GUEST,
        brand=BRANDS.get(_answer(session, "nvmlDeviceGetBrand", nvml_gpu), ""),
        pcie_root=_pcie_root(nvml_gpu, sys_root),
        addressing_mode=_ADDRESSING_MODES.get(_answer(session, "nvmlDeviceGetAddressingMode", nvml_gpu), ""),
    )


def _answer(session: NvmlSession, name: str, nvml_gpu: NvmlGpu) -> int:
    """Return a number about a GPU; -1 if this driver has no answer, or this nvidia-ml-py no such function."""
    function = getattr(session.nv, name, None)
    if function is None:
        return -1
    code, answer = session.try_call(function, nvml_gpu.handle)
    return int(answer) if code == codes.SUCCESS else -1


def _pcie_root(nvml_gpu: NvmlGpu, sys_root: str | None) -> str:
    """Return the root complex above a GPU, from the path of its device in sysfs."""
    if sys_root is None:
        return ""
    found = _PCIE_ROOT.search(os.path.realpath(f"{sys_root}/bus/pci/devices/{nvml_gpu.pci}"))
    return found[1] if found is not None else ""


def _numa_node(reader: NvmlReader, nvml_gpu: NvmlGpu, sys_root: str | None) -> int | None:
    """Return the NUMA node from sysfs, which device plugins use, else the first node that NVML reports as near."""
    text = _pci_file(nvml_gpu, sys_root, "numa_node")
    if text is not None:
        return int(text) if int(text) >= 0 else None  # -1: the host has no NUMA nodes
    near = reader.session.nv.nvmlDeviceGetMemoryAffinity
    code, words = reader.session.try_call(near, nvml_gpu.handle, _AFFINITY_WORDS, _SCOPE_NODE)
    if code != codes.SUCCESS:
        return None
    return next((64 * n + (w & -w).bit_length() - 1 for n, w in enumerate(words) if w), None)


def _pci_class(reader: NvmlReader, nvml_gpu: NvmlGpu, sys_root: str | None) -> int:
    """Return class and subclass as one number; -1 if unknown."""
    text = _pci_file(nvml_gpu, sys_root, "class")
    if text is not None:
        return int(text, 16) >> 8
    nv = reader.session.nv
    info = nv.nvmlPciInfoExt_v1_t(version=nv.nvmlPciInfoExt_v1)
    code, _ = reader.session.try_call(nv.nvmlDeviceGetPciInfoExt, nvml_gpu.handle, byref(info))
    return int(info.baseClass) << 8 | int(info.subClass) if code == codes.SUCCESS else -1


def _clique(reader: NvmlReader, nvml_gpu: NvmlGpu) -> str:
    """Return ``<cluster uuid>.<clique id>``. A cluster UUID of zeros belongs to a switch inside one host, which is not
    a clique.
    """
    nv = reader.session.nv
    info = nv.c_nvmlGpuFabricInfo_v2_t()
    code, _ = reader.session.try_call(nv.nvmlDeviceGetGpuFabricInfoV, nvml_gpu.handle, byref(info))
    cluster = bytes(info.clusterUuid).hex()
    registered = code == codes.SUCCESS and info.state == _FABRIC_COMPLETED and info.status == codes.SUCCESS
    if not registered or not int(cluster, 16):
        return ""
    uuid = "-".join((cluster[:8], cluster[8:12], cluster[12:16], cluster[16:20], cluster[20:]))
    return f"{uuid}.{info.cliqueId}"


def _mig_devices(reader: NvmlReader, nvml_gpu: NvmlGpu) -> Iterator[MigDevice]:
    session, nv, pci = reader.session, reader.session.nv, nvml_gpu.pci
    attempt = f"reading the MIG devices of {pci}"
    for index in range(session.call(attempt, nv.nvmlDeviceGetMaxMigDeviceCount, nvml_gpu.handle, gpu=pci)):
        code, handle = session.try_call(nv.nvmlDeviceGetMigDeviceHandleByIndex, nvml_gpu.handle, index)
        if code in (codes.NOT_FOUND, codes.INVALID_ARGUMENT):
            continue  # positions may be empty, with gaps between them
        if code != codes.SUCCESS:
            raise codes.error(code, attempt, gpu=pci)
        device = _mig_device(reader, nvml_gpu, handle, index)
        if device is not None:
            yield device


def _mig_device(reader: NvmlReader, nvml_gpu: NvmlGpu, handle: Any, index: int) -> MigDevice | None:
    """Return a MIG device, or None if it was destroyed since it was listed."""
    session, nv = reader.session, reader.session.nv
    answers: list[Any] = []
    for question in (
        nv.nvmlDeviceGetUUID,
        nv.nvmlDeviceGetName,
        nv.nvmlDeviceGetGpuInstanceId,
        nv.nvmlDeviceGetComputeInstanceId,
        nv.nvmlDeviceGetAttributes_v2,
    ):
        code, answer = session.try_call(question, handle)
        if code in (codes.NOT_FOUND, codes.INVALID_ARGUMENT):
            return None
        if code != codes.SUCCESS:
            raise codes.error(code, f"reading MIG device {index} of {nvml_gpu.pci}", gpu=nvml_gpu.pci)
        answers.append(answer)
    uuid, name, instance, compute, attributes = answers
    return MigDevice(
        uuid=uuid,
        gpu=nvml_gpu.pci,
        instance=instance,
        compute_instance=compute,
        index=index,
        profile=str(name).rpartition(" MIG ")[2],
        memory_mib=attributes.memorySizeMB,
        multiprocessors=attributes.multiprocessorCount,
        gi_slices=attributes.gpuInstanceSliceCount,
        ci_slices=attributes.computeInstanceSliceCount,
        copy=attributes.sharedCopyEngineCount,
        decoder=attributes.sharedDecoderCount,
        encoder=attributes.sharedEncoderCount,
        jpeg=attributes.sharedJpegCount,
        ofa=attributes.sharedOfaCount,
    )


def _pci_file(nvml_gpu: NvmlGpu, sys_root: str | None, name: str) -> str | None:
    return _text(f"{sys_root}/bus/pci/devices/{nvml_gpu.pci}/{name}") if sys_root is not None else None


def _host_product(sys_root: str | None) -> str:
    """Return the product name from the firmware: DMI, or the device tree on boards without DMI."""
    if sys_root is None:
        return ""
    dmi = _text(f"{sys_root}/class/dmi/id/product_name")
    return dmi or _text(f"{sys_root}/firmware/devicetree/base/model") or ""


def _text(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip("\0 \t\r\n")
    except OSError:
        return None
