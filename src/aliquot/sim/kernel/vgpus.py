"""Creating and removing vGPUs through the files of both kernels: ``create`` and ``remove`` of mdevs,
``current_vgpu_type``.

Refusals are OSError. The mdev core raises EINVAL and EEXIST for a UUID. The driver raises ENOSPC for "insufficient
resources" and EIO otherwise. Vendor-specific VFIO raises EIO for every refusal of the driver.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable

from aliquot.sim.driver.gpu import SimGpu
from aliquot.sim.kernel import pci, rules, vms
from aliquot.sim.kernel.devices import refuse
from aliquot.sim.kernel.rules import DriverRefusedError
from aliquot.sim.node import SimNode
from aliquot.sim.state import WHOLE, FunctionState, VgpuState

FunctionWrite = Callable[[SimNode, SimGpu, FunctionState, str], None]
_UUID = re.compile(r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\n?")
NO_INSTANCE = 0xFFFFFFFF
NO_PLACEMENT = 0xFFFF
"""The files' values without a GPU instance or a placement (NVML's invalid ids; an inference)."""


class DriverError(OSError):
    """A refusal of NVIDIA's driver, with the resource manager's code for the kernel log."""

    def __init__(self, code: int, rm: int) -> None:
        import os

        super().__init__(code, os.strerror(code))
        self.rm = rm


def on(gpu: SimGpu, function: str) -> VgpuState | None:
    """Return the vGPU of a virtual function."""
    return next((v for v in gpu.state.vgpus if v.function == function), None)


def by_uuid(node: SimNode, uuid: str) -> VgpuState | None:
    return next((v for g in node.gpus for v in g.state.vgpus if v.uuid == uuid), None)


def create(node: SimNode, gpu: SimGpu, function: str, type_id: int, text: str) -> None:
    """Create a vGPU from a UUID written to ``create`` of a type."""
    if not _UUID.fullmatch(text):
        raise refuse(errno.EINVAL)
    uuid = text.strip().lower()
    if by_uuid(node, uuid) is not None:
        raise refuse(errno.EEXIST)
    if function != gpu.state.pci and not node.state.iommu:
        raise refuse(errno.EINVAL)  # an inference: a virtual function's mdev needs the IOMMU
    try:
        gi, placement = rules.choose(gpu.state, function, type_id)
    except DriverRefusedError as refused:
        full = refused.rm == rules.INSUFFICIENT_RESOURCES
        raise DriverError(errno.ENOSPC if full else errno.EIO, refused.rm) from refused
    (group,) = pci.free_groups(node.state, 1)
    gpu.state.vgpus = [*gpu.state.vgpus, VgpuState(function, type_id, uuid, group, gi, placement)]


def remove(node: SimNode, gpu: SimGpu, vgpu: VgpuState, text: str) -> None:
    """Write ``remove`` of an mdev: any number but 0 removes it."""
    if _number(text) == 0:
        return
    if vms.open_on(node, vgpu.uuid):
        raise refuse(errno.EBUSY)
    gpu.state.vgpus = [v for v in gpu.state.vgpus if v is not vgpu]


def set_type(node: SimNode, gpu: SimGpu, function: FunctionState, text: str) -> None:
    """Write ``current_vgpu_type``: a type's id creates a vGPU, 0 removes it."""
    wanted = _number(text)
    address = pci.function_address(gpu.state, function.number)
    existing = on(gpu, address)
    if wanted == 0:
        if existing is not None and vms.open_on(node, address):
            raise refuse(errno.EBUSY)
        gpu.state.vgpus = [v for v in gpu.state.vgpus if v is not existing]
        return
    if not node.state.iommu:
        raise DriverError(errno.EIO, rules.INVALID_STATE)
    try:
        gi, placement = rules.choose(gpu.state, address, wanted)
    except DriverRefusedError as refused:
        raise DriverError(errno.EIO, refused.rm) from refused
    gpu.state.vgpus = [*gpu.state.vgpus, VgpuState(address, wanted, "", WHOLE, gi, placement)]


def _existing(gpu: SimGpu, function: FunctionState) -> VgpuState:
    """Return the vGPU of a function. Raises ENXIO before a type is set."""
    found = on(gpu, pci.function_address(gpu.state, function.number))
    if found is None:
        raise refuse(errno.ENXIO)
    return found


def instance_id(gpu: SimGpu, function: FunctionState) -> int:
    found = _existing(gpu, function).gi
    return NO_INSTANCE if found == WHOLE else found


def placement_id(gpu: SimGpu, function: FunctionState) -> int:
    found = _existing(gpu, function).placement
    return NO_PLACEMENT if found == WHOLE else found


def move_instance(node: SimNode, gpu: SimGpu, function: FunctionState, text: str) -> None:
    """Write ``gpu_instance_id``: move a vGPU that does not run to another GPU instance."""
    vgpu, wanted = _existing(gpu, function), _number(text)
    kind = rules.type_by_id(gpu.state, vgpu.type_id)
    instance = next((i for i in gpu.state.instances if i.id == wanted), None)
    fits = kind is not None and instance is not None
    if vms.open_on(node, vgpu.function) or not fits or vgpu.gi == WHOLE:
        raise DriverError(errno.EIO, rules.INVALID_STATE)
    if kind is not None and instance is not None and wanted != vgpu.gi:
        if not rules.instance_takes(gpu.state, instance, kind):
            raise DriverError(errno.EIO, rules.INVALID_STATE)
        inside = rules.free_placement(gpu.state, kind, wanted)
        vgpu.gi, vgpu.placement = wanted, WHOLE if inside is None else inside


def move_placement(node: SimNode, gpu: SimGpu, function: FunctionState, text: str) -> None:
    """Write ``placement_id``: move a vGPU that does not run to another placement."""
    vgpu, wanted = _existing(gpu, function), _number(text)
    kind = rules.type_by_id(gpu.state, vgpu.type_id)
    if vms.open_on(node, vgpu.function) or kind is None or wanted not in rules.placements_of(gpu.state, kind, vgpu.gi):
        raise DriverError(errno.EIO, rules.INVALID_STATE)
    if not rules.is_free(gpu.state, kind, wanted, vgpu.gi, ignoring=vgpu):
        raise DriverError(errno.EIO, rules.INVALID_STATE)
    vgpu.placement = wanted


def set_params(node: SimNode, vgpu: VgpuState | None, text: str) -> None:
    """Write ``vgpu_params``: plugin parameters of a vGPU that does not run."""
    if vgpu is None:
        raise refuse(errno.ENXIO)
    if vms.open_on(node, vgpu.uuid or vgpu.function):
        raise refuse(errno.EBUSY)
    vgpu.params = text.strip()


def _number(text: str) -> int:
    try:
        value = int(text.strip(), 0)
    except ValueError:
        raise refuse(errno.EINVAL) from None
    if not 0 <= value < 1 << 32:
        raise refuse(errno.EINVAL)
    return value
