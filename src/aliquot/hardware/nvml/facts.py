"""Facts beside the geometry, through NVML and, for the place in the machine, through sysfs.

Each GPU and each MIG device answers for itself: one that falls off the bus, or is destroyed while it is asked, is left
out. Sources: nvml.h for the calls; the class and ``numa_node`` files of PCI devices in sysfs; DMI for the machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from ctypes import byref
from typing import Any

from aliquot.core.model import nvml_return_codes as codes
from aliquot.core.model.facts import Facts, GpuFacts, MigDevice
from aliquot.errors import GpuLostError
from aliquot.hardware.nvml.reader import Card, Reader
from aliquot.hardware.nvml.session import Session

_VGA = 0x0300
_FABRIC_COMPLETED = 3
_VGPU_GUEST = 2
_AFFINITY_WORDS = 16
_SCOPE_NODE = 0


def read_facts(reader: Reader, sys_root: str | None) -> Facts:
    """``sys_root`` is ``/sys``, or None where the GPUs are not in this machine (a simulated node)."""
    session = reader.session
    gpus: list[GpuFacts] = []
    devices: list[MigDevice] = []
    for card, mig in reader.cards():
        with suppress(GpuLostError):
            gpu, on_it = _gpu(reader, card, sys_root), tuple(_mig_devices(reader, card)) if mig.enabled else ()
            gpus.append(gpu)
            devices += on_it
    cuda = int(_told(session, "reading the CUDA version", session.nv.nvmlSystemGetCudaDriverVersion_v2) or 0)
    return Facts(
        driver=session.driver,
        cuda=(cuda // 1000, cuda % 1000 // 10),
        gpus=tuple(gpus),
        mig_devices=tuple(devices),
        machine=_machine(sys_root),
    )


def _told(session: Session, attempt: str, function: Any, *arguments: Any, gpu: str = "") -> Any:
    """An answer, None where this GPU or this driver has no such thing."""
    code, answer = session.ask(function, *arguments)
    if code in (codes.SUCCESS, codes.NOT_SUPPORTED, codes.FUNCTION_NOT_FOUND, codes.LIBRARY_NOT_FOUND):
        return answer
    raise codes.error(code, attempt, gpu=gpu)


def _gpu(reader: Reader, card: Card, sys_root: str | None) -> GpuFacts:
    session, nv, pci = reader.session, reader.session.nv, card.pci
    memory = _told(session, f"reading the memory of {pci}", nv.nvmlDeviceGetMemoryInfo, card.handle, gpu=pci)
    capability = nv.nvmlDeviceGetCudaComputeCapability
    _, virtual = session.ask(nv.nvmlDeviceGetVirtualizationMode, card.handle)
    told = _told(session, f"reading the compute capability of {pci}", capability, card.handle, gpu=pci)
    return GpuFacts(
        pci=pci,
        memory_mib=int(memory.total) >> 20 if memory is not None else 0,  # a system on chip has none of its own
        compute_capability=told or (0, 0),
        numa_node=_numa_node(reader, card, sys_root),
        display=_pci_class(reader, card, sys_root) == _VGA,
        clique=_clique(reader, card),
        vgpu=virtual == _VGPU_GUEST,
    )


def _numa_node(reader: Reader, card: Card, sys_root: str | None) -> int | None:
    """What sysfs says, which is what device plugins go by; else the first node that NVML calls near."""
    told = _pci_file(card, sys_root, "numa_node")
    if told is not None:
        return int(told) if int(told) >= 0 else None  # -1: the machine has no NUMA nodes
    near = reader.session.nv.nvmlDeviceGetMemoryAffinity
    code, words = reader.session.ask(near, card.handle, _AFFINITY_WORDS, _SCOPE_NODE)
    if code != codes.SUCCESS:
        return None
    return next((64 * n + (w & -w).bit_length() - 1 for n, w in enumerate(words) if w), None)


def _pci_class(reader: Reader, card: Card, sys_root: str | None) -> int:
    """Class and subclass in one number; -1 where nobody says."""
    told = _pci_file(card, sys_root, "class")
    if told is not None:
        return int(told, 16) >> 8
    nv = reader.session.nv
    info = nv.nvmlPciInfoExt_v1_t(version=nv.nvmlPciInfoExt_v1)
    code, _ = reader.session.ask(nv.nvmlDeviceGetPciInfoExt, card.handle, byref(info))
    return int(info.baseClass) << 8 | int(info.subClass) if code == codes.SUCCESS else -1


def _clique(reader: Reader, card: Card) -> str:
    """``<cluster uuid>.<clique id>``. A cluster UUID of zeros belongs to a switch inside one machine: no clique."""
    nv = reader.session.nv
    info = nv.c_nvmlGpuFabricInfo_v2_t()
    code, _ = reader.session.ask(nv.nvmlDeviceGetGpuFabricInfoV, card.handle, byref(info))
    cluster = bytes(info.clusterUuid).hex()
    registered = code == codes.SUCCESS and info.state == _FABRIC_COMPLETED and info.status == codes.SUCCESS
    if not registered or not int(cluster, 16):
        return ""
    uuid = "-".join((cluster[:8], cluster[8:12], cluster[12:16], cluster[16:20], cluster[20:]))
    return f"{uuid}.{info.cliqueId}"


def _mig_devices(reader: Reader, card: Card) -> Iterator[MigDevice]:
    session, nv, pci = reader.session, reader.session.nv, card.pci
    attempt = f"reading the MIG devices of {pci}"
    for index in range(session.call(attempt, nv.nvmlDeviceGetMaxMigDeviceCount, card.handle, gpu=pci)):
        code, handle = session.ask(nv.nvmlDeviceGetMigDeviceHandleByIndex, card.handle, index)
        if code in (codes.NOT_FOUND, codes.INVALID_ARGUMENT):
            continue  # positions may be empty, and there may be holes
        if code != codes.SUCCESS:
            raise codes.error(code, attempt, gpu=pci)
        device = _mig_device(reader, card, handle, index)
        if device is not None:
            yield device


def _mig_device(reader: Reader, card: Card, handle: Any, index: int) -> MigDevice | None:
    """None if somebody destroyed it between its listing and the questions about it."""
    session, nv = reader.session, reader.session.nv
    answers: list[Any] = []
    for question in (
        nv.nvmlDeviceGetUUID,
        nv.nvmlDeviceGetName,
        nv.nvmlDeviceGetGpuInstanceId,
        nv.nvmlDeviceGetComputeInstanceId,
        nv.nvmlDeviceGetAttributes_v2,
    ):
        code, answer = session.ask(question, handle)
        if code in (codes.NOT_FOUND, codes.INVALID_ARGUMENT):
            return None
        if code != codes.SUCCESS:
            raise codes.error(code, f"reading MIG device {index} of {card.pci}", gpu=card.pci)
        answers.append(answer)
    uuid, name, instance, compute, told = answers
    return MigDevice(
        uuid=uuid,
        gpu=card.pci,
        instance=instance,
        compute_instance=compute,
        index=index,
        profile=str(name).rpartition(" MIG ")[2],
        memory_mib=told.memorySizeMB,
        multiprocessors=told.multiprocessorCount,
        gi_slices=told.gpuInstanceSliceCount,
        ci_slices=told.computeInstanceSliceCount,
        copy=told.sharedCopyEngineCount,
        decoder=told.sharedDecoderCount,
        encoder=told.sharedEncoderCount,
        jpeg=told.sharedJpegCount,
        ofa=told.sharedOfaCount,
    )


def _pci_file(card: Card, sys_root: str | None, name: str) -> str | None:
    return _text(f"{sys_root}/bus/pci/devices/{card.pci}/{name}") if sys_root is not None else None


def _machine(sys_root: str | None) -> str:
    """The product name that the firmware gives: DMI, or the device tree on boards without it."""
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
