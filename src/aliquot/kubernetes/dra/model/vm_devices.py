"""The devices of a GPU that serves VMs, and their counters. Pure.

The whole GPU takes every counter. A MIG-backed vGPU takes what its GPU instance takes. A time-sliced vGPU takes its
part of every memory slice: all of them fit together, and none beside an instance, which takes its slices wholly.
Two sizes of time-sliced vGPUs could not exclude each other by counters, hence one type of them on a GPU.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterator, Sequence

import msgspec

from aliquot.core.model.catalog import Family, Profile
from aliquot.core.model.inventory import Gpu, GpuInstance, Inventory, Vgpu
from aliquot.core.model.vgpu_types import VgpuType
from aliquot.core.planner.restore_point import VFIO
from aliquot.core.planner.vgpu.naming import NAMESPACE
from aliquot.core.planner.vgpu.placement_policies import MOST_TIME_SLICED
from aliquot.kubernetes.dra.model.attributes import MIB, Attributes, text, whole_capacity
from aliquot.kubernetes.dra.model.attributes import instance_attributes as placed
from aliquot.kubernetes.dra.model.counters import family_counters
from aliquot.kubernetes.dra.model.device import VGPU_TYPE, WARM, CounterSet, DraDevice
from aliquot.kubernetes.dra.model.naming import vm_device_name
from aliquot.kubernetes.dra.model.vm_service import ServedTypes

KeepsInstance = Callable[[Gpu, GpuInstance], bool]
"""Reports whether an idle instance must stay."""

_SHARES = "vgpus"
"""The only counter of a GPU that is never divided into instances."""


class VmCounters(msgspec.Struct, frozen=True):
    """The counters of a GPU that serves VMs."""

    totals: dict[str, int]
    """What the whole GPU takes too."""
    sliced: dict[str, int]
    """What each time-sliced vGPU takes."""
    instances: dict[tuple[int, int], dict[str, int]]
    """What a MIG-backed vGPU takes, by profile id and first memory slice."""


def vm_counters(family: Family | None, shares: int) -> VmCounters:
    """Return the counters. ``shares`` are the time-sliced vGPUs that fit, ``family`` None without MIG-backed ones."""
    parts = max(1, shares)
    if family is None:
        return VmCounters({_SHARES: parts}, {_SHARES: 1}, {})
    base = family_counters(family)
    slices = {name for name in base.totals if name.startswith("memory-slice-")}

    def scaled(counters: dict[str, int]) -> dict[str, int]:
        return {name: count * parts if name in slices else count for name, count in counters.items()}

    instances = {place: scaled(uses) for place, uses in base.instances.items()}
    return VmCounters(scaled(base.totals), dict.fromkeys(sorted(slices), 1), instances)


def vm_devices(
    gpu: Gpu, served: ServedTypes, family: Family | None, common: Attributes
) -> tuple[tuple[DraDevice, ...], CounterSet]:
    """Return the devices of a GPU and their counter set."""
    counters = vm_counters(family if served.mig_backed else None, served.count)
    name = f"{vm_device_name(gpu)}-counter-set"
    devices = (
        *_whole(gpu, served, common, counters),
        *_sliced(gpu, served, common, counters),
        *_backed(gpu, served, common, counters),
    )
    named = tuple(msgspec.structs.replace(each, counter_set=name) for each in devices)
    return named, CounterSet(name, gpu.pci, counters.totals)


def vgpu_uuid(gpu: Gpu, device: str) -> str:
    """Return the UUID of the vGPU that a claim gets for a device.

    It follows from the name, so a vGPU with such a UUID was created for a claim, whatever else is lost.
    """
    return str(uuid.uuid5(NAMESPACE, f"{gpu.identity}/{device}"))


def is_own_vgpu(inventory: Inventory, gpu: Gpu, vgpu: Vgpu) -> bool:
    """Report whether a vGPU was created for a claim, whatever the GPU serves now."""
    table = inventory.vgpu_table(gpu)
    kind = table.by_id.get(vgpu.type_id) if table is not None else None
    if kind is None:
        return False
    names = {vm_device_name(gpu, kind.short, number) for number in range(MOST_TIME_SLICED)}
    if kind.mig_backed:
        profiles = inventory.family(gpu).profiles if gpu.family else ()
        names = {vm_device_name(gpu, kind.short, p.id, start) for p in profiles for start in p.starts}
    return any(vgpu.uuid == vgpu_uuid(gpu, name) for name in names)


def passed_through_functions(gpu: Gpu) -> tuple[str, ...]:
    """Return the addresses of the virtual functions that others passed through: claims never do."""
    functions = gpu.virtual.functions if gpu.virtual is not None else ()
    return tuple(each.pci for each in functions if each.driver == VFIO)


def others_use(
    inventory: Inventory, gpu: Gpu, devices: Sequence[DraDevice], allocated: Collection[str], keeps: KeepsInstance
) -> bool:
    """Report whether a GPU that serves VMs has something that neither a claim has nor was created for one.

    Nothing is free then: no counter knows of it. ``devices`` are those of this GPU, and ``keeps`` reports whether an
    instance was not created for a claim.
    """
    taken = {device.name for device in devices} & set(allocated)
    if any(device.whole and device.name in taken for device in devices):
        return False  # whatever is on it belongs to the claim
    if gpu.holders and not taken:
        return True
    claimed = {vgpu_uuid(gpu, name) for name in taken}
    own = [each for each in gpu.vgpus if is_own_vgpu(inventory, gpu, each)]
    inside = {each.gpu_instance for each in own}
    return (
        len(own) < len(gpu.vgpus)
        or bool(passed_through_functions(gpu))
        or any(each.held and each.uuid not in claimed for each in own)
        or any(keeps(gpu, each) or each.held for each in gpu.instances if each.id not in inside)
    )


def _whole(gpu: Gpu, served: ServedTypes, common: Attributes, counters: VmCounters) -> Iterator[DraDevice]:
    if not served.passthrough:
        return
    numbers = gpu.pci_device.removeprefix("0x").lower()  # device and vendor: 25b610de
    attributes = {
        "type": text("vfio"),
        **({"uuid": text(gpu.uuid)} if gpu.uuid else {}),
        "deviceID": text(f"0x{numbers[:4]}"),
        "vendorID": text(f"0x{numbers[4:]}"),
    }
    yield DraDevice(
        vm_device_name(gpu, "vfio"),
        gpu.uuid,
        gpu.pci,
        attributes=attributes | common,
        capacity=whole_capacity(gpu, None, None),
        uses=counters.totals,
    )


def _sliced(gpu: Gpu, served: ServedTypes, common: Attributes, counters: VmCounters) -> Iterator[DraDevice]:
    vgpu = served.time_sliced
    if vgpu is None:
        return
    for number in range(served.count):
        yield DraDevice(
            vm_device_name(gpu, vgpu.short, number),
            gpu.uuid,
            gpu.pci,
            attributes=_vgpu_attributes(gpu, vgpu) | common,
            capacity={"memory": vgpu.fb_mib * MIB},
            uses=counters.sliced,
            vgpu=vgpu.short,
        )


def _backed(gpu: Gpu, served: ServedTypes, common: Attributes, counters: VmCounters) -> Iterator[DraDevice]:
    for profile, vgpu in served.mig_backed:
        for start in profile.starts:
            yield DraDevice(
                vm_device_name(gpu, vgpu.short, profile.id, start),
                gpu.uuid,
                gpu.pci,
                profile.name,
                profile.id,
                start,
                profile.size,
                _placed_attributes(gpu, profile, start) | _vgpu_attributes(gpu, vgpu) | common,
                {"memory": vgpu.fb_mib * MIB},
                uses=counters.instances[profile.id, start],
                vgpu=vgpu.short,
            )


def _vgpu_attributes(gpu: Gpu, vgpu: VgpuType) -> Attributes:
    return {"type": text("vgpu"), "parentUUID": text(gpu.uuid), VGPU_TYPE: text(vgpu.short)}


def _placed_attributes(gpu: Gpu, profile: Profile, start: int) -> Attributes:
    found = placed(gpu, profile, start, warm=False)
    return {name: value for name, value in found.items() if name != WARM}
