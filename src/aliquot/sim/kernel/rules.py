"""The rules by which NVIDIA's driver permits vGPUs: pure functions over one GPU's state.

Source: open-gpu-kernel-modules 595.45.04, kernel_vgpu_mgr.c (behaviour restated, no code), which agrees with the
captures of A2, A40 and L40S. Codes are those of the resource manager, as in its log lines.
"""

from __future__ import annotations

from functools import cache

from aliquot.core.model import vgpu_types as vgpu
from aliquot.core.model.vgpu_types import VgpuType
from aliquot.sim.kernel import pci
from aliquot.sim.state import WHOLE, GpuState, InstanceState, VgpuState

INSUFFICIENT_RESOURCES = 0x1A
INVALID_ARGUMENT = 0x1F
INVALID_OPERATION = 0x38
INVALID_STATE = 0x40
NOT_SUPPORTED = 0x56

MAX_TIME_SLICED = 32
MAX_WITH_MIG = 48
MAX_PER_INSTANCE = 12
"""The driver's hard limits: vGPUs of one GPU without and with MIG, and of one GPU instance."""

_NO_COMPUTE_TYPES = ("NVIDIA A40", "NVIDIA L40S")
"""Boards whose captured lists have no C-series type, which needs another edition of the host driver."""


class DriverRefusedError(Exception):
    """The driver refuses to create a vGPU. ``rm`` is the resource manager's code."""

    def __init__(self, rm: int) -> None:
        super().__init__(f"0x{rm:x}")
        self.rm = rm


def vgpu_framework(gpu: GpuState) -> str:
    """Return the vGPU framework of this GPU: ``mdev`` (of the physical function), ``sriov-mdev`` or ``vendor-vfio``.
    Return "" without the vGPU host driver, or if the board has no vGPU in that kernel (no mdev, no SR-IOV).
    """
    if not gpu.host or gpu.driver != "nvidia" or gpu.guest or pci.table(gpu) is None:
        return ""
    if pci.total_functions(gpu):
        return "sriov-mdev" if gpu.host == "mdev" else "vendor-vfio"
    return "mdev" if gpu.host == "mdev" else ""


def types(gpu: GpuState) -> tuple[VgpuType, ...]:
    """Return the types that the driver knows for this board, by id. Types without a public number are omitted."""
    return tuple(_known(gpu.pci_device, gpu.subsystem, gpu.compute).values())


@cache
def _known(pci_device: str, subsystem: str, compute: bool) -> dict[int, VgpuType]:
    table = vgpu.table(pci_device, subsystem)
    if table is None:
        return {}
    hidden = not compute and table.name in _NO_COMPUTE_TYPES
    known = [(t.id, t) for t in table.types if t.id is not None and not (hidden and t.series == "C")]
    return dict(sorted(known, key=lambda pair: pair[0]))


def type_by_id(gpu: GpuState, type_id: int) -> VgpuType | None:
    return _known(gpu.pci_device, gpu.subsystem, gpu.compute).get(type_id)


def _size(gpu: GpuState, vgpu: VgpuState) -> int:
    found = type_by_id(gpu, vgpu.type_id)
    return found.fb_mib if found else 0


def width(gpu: GpuState, wanted: VgpuType) -> int:
    """Return the GiB that a vGPU covers on the GPU: on RTX PRO Blackwell 2 GB types take 3 of 96."""
    table = pci.table(gpu)
    if table is not None and table.architecture == "blackwell":
        return max(wanted.size_gib, table.region // max(wanted.max, 1))
    return wanted.size_gib


def placements(gpu: GpuState, wanted: VgpuType) -> tuple[int, ...]:
    """Return the placement ids of a type in the GPU's current mode; none if the driver does not place vGPUs (Ampere and
    older in equal-size mode).
    """
    table = pci.table(gpu)
    if gpu.mixed or (table is not None and table.architecture == "blackwell"):
        return wanted.mixed
    if table is not None and table.architecture in ("ada", "hopper"):
        return tuple(n * wanted.size_gib for n in range(wanted.max))
    return ()


def placements_inside(gpu: GpuState, instance: InstanceState, wanted: VgpuType) -> tuple[int, ...]:
    """Return the placement ids of a type in a GPU instance, which count GiB from its start; none in equal-size mode.
    The driver divides the instance, as large as its largest type, by the number of vGPUs of the type.
    """
    if not instance.mixed or instance.profile != wanted.profile_id:
        return ()
    region = max(t.size_gib for t in types(gpu) if t.profile_id == instance.profile)
    return tuple(region * n // wanted.per_instance for n in range(wanted.per_instance))


def placements_of(gpu: GpuState, wanted: VgpuType, gi: int = WHOLE) -> tuple[int, ...]:
    """Return the placement ids of a type on the GPU, or in one of its GPU instances."""
    if gi == WHOLE:
        return placements(gpu, wanted)
    return next((placements_inside(gpu, i, wanted) for i in gpu.instances if i.id == gi), ())


def free_placement(gpu: GpuState, wanted: VgpuType, gi: int = WHOLE) -> int | None:
    """Return the first placement of a type that overlaps no other vGPU, in the order of the table (first fit)."""
    return next((p for p in placements_of(gpu, wanted, gi) if is_free(gpu, wanted, p, gi)), None)


def is_free(
    gpu: GpuState, wanted: VgpuType, placement: int, gi: int = WHOLE, ignoring: VgpuState | None = None
) -> bool:
    end = placement + width(gpu, wanted)
    for other in gpu.vgpus:
        kind = type_by_id(gpu, other.type_id)
        if other is ignoring or kind is None or other.placement == WHOLE or other.gi != gi:
            continue
        if placement < other.placement + width(gpu, kind) and other.placement < end:
            return False
    return True


def instance_takes(gpu: GpuState, instance: InstanceState, wanted: VgpuType) -> bool:
    """Return whether a GPU instance can hold one more vGPU of a type: its profile, one frame buffer size, the count.
    In mixed-size mode only a free placement counts.
    """
    if instance.mixed:
        return free_placement(gpu, wanted, instance.id) is not None
    existing = [v for v in gpu.vgpus if v.gi == instance.id]
    return (
        instance.profile == wanted.profile_id
        and len(existing) < min(wanted.per_instance, MAX_PER_INSTANCE)
        and all(_size(gpu, v) == wanted.fb_mib for v in existing)
    )


def available(gpu: GpuState, function: str, wanted: VgpuType) -> int:
    """Return ``available_instances`` of a type for a function: 0 or 1, or a count if vGPUs are on the GPU itself."""
    created = len(gpu.vgpus)
    if vgpu_framework(gpu) == "mdev":
        if created and any(_size(gpu, v) != wanted.fb_mib for v in gpu.vgpus):
            return 0
        return max(0, wanted.max - created)
    if function == gpu.pci or any(v.function == function for v in gpu.vgpus):
        return 0
    if gpu.mig:
        if not wanted.mig_backed or created >= MAX_WITH_MIG:
            return 0
        return int(any(instance_takes(gpu, i, wanted) for i in gpu.instances))
    if wanted.mig_backed or created >= min(wanted.max, MAX_TIME_SLICED):
        return 0
    if gpu.mixed:
        return int(not created or free_placement(gpu, wanted) is not None)
    return int(all(_size(gpu, v) == wanted.fb_mib for v in gpu.vgpus))


def creatable(gpu: GpuState, function: str) -> tuple[VgpuType, ...]:
    """Return the types that the driver lists for a function now, by id."""
    return tuple(t for t in types(gpu) if available(gpu, function, t))


def choose(gpu: GpuState, function: str, type_id: int) -> tuple[int, int]:
    """Return the GPU instance and the placement of a new vGPU, WHOLE for none. Raises DriverRefusedError in the order
    of the driver's checks. The lists of ``available`` are not checked again, because in mixed-size mode they may
    contain less.
    """
    if gpu.lost:
        raise DriverRefusedError(INVALID_STATE)
    wanted = type_by_id(gpu, type_id)
    if wanted is None:
        raise DriverRefusedError(INVALID_ARGUMENT)
    if vgpu_framework(gpu) != "mdev" and any(v.function == function for v in gpu.vgpus):
        raise DriverRefusedError(INVALID_OPERATION)
    if gpu.mig:
        found = _instance_for(gpu, wanted)
        inside = free_placement(gpu, wanted, found)
        return found, WHOLE if inside is None else inside
    if wanted.mig_backed:
        raise DriverRefusedError(INVALID_OPERATION)
    if not gpu.mixed and any(_size(gpu, v) != wanted.fb_mib for v in gpu.vgpus):
        raise DriverRefusedError(NOT_SUPPORTED)
    if len(gpu.vgpus) >= (MAX_TIME_SLICED if gpu.mixed else min(wanted.max, MAX_TIME_SLICED)):
        raise DriverRefusedError(INSUFFICIENT_RESOURCES)
    placement = free_placement(gpu, wanted) if placements(gpu, wanted) else WHOLE
    if placement is None:
        raise DriverRefusedError(INVALID_STATE)
    return WHOLE, placement


def _instance_for(gpu: GpuState, wanted: VgpuType) -> int:
    if not gpu.instances or not wanted.mig_backed:
        raise DriverRefusedError(INVALID_OPERATION)
    if len(gpu.vgpus) >= MAX_WITH_MIG:
        raise DriverRefusedError(INSUFFICIENT_RESOURCES)
    fitting = [i.id for i in gpu.instances if instance_takes(gpu, i, wanted)]
    if not fitting:
        raise DriverRefusedError(INVALID_STATE)
    return min(fitting)


def mixed_possible(gpu: GpuState) -> bool:
    """Return whether the board and its driver support mixed-size mode, and MIG mode is off."""
    table = pci.table(gpu)
    return table is not None and table.mixed_size and bool(vgpu_framework(gpu)) and not gpu.mig


def shared_instance(gpu: GpuState, instance: InstanceState) -> bool:
    """Return whether several vGPUs can share the time of a GPU instance, so that it has a scheduler."""
    profile = instance.profile
    return mixed_inside_possible(gpu) and any(t.profile_id == profile and t.per_instance > 1 for t in types(gpu))


def mixed_inside_possible(gpu: GpuState) -> bool:
    """Return whether GPU instances have mixed-size mode: MIG mode is on, and the chip shares one between vGPUs."""
    return gpu.mig and bool(vgpu_framework(gpu)) and any(t.per_instance > 1 for t in types(gpu))
