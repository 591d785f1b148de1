"""All devices that the GPUs of a node offer, whatever is allocated or exists now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

import msgspec

from aliquot.core.model.catalog import Family, Profile
from aliquot.core.model.facts import Facts
from aliquot.core.model.inventory import Gpu, GpuInstance, Inventory
from aliquot.core.model.placement import Placement
from aliquot.kubernetes.dra.model.attributes import (
    Attributes,
    common_attributes,
    instance_attributes,
    instance_capacity,
    whole_attributes,
    whole_capacity,
)
from aliquot.kubernetes.dra.model.counters import family_counters
from aliquot.kubernetes.dra.model.device import CounterSet, DraDevice, ModeChanges
from aliquot.kubernetes.dra.model.naming import DriverNaming
from aliquot.kubernetes.dra.model.vm_devices import vm_devices
from aliquot.kubernetes.dra.model.vm_service import VmService, served_types

NO_VMS: Mapping[str, VmService] = MappingProxyType({})
"""No GPU serves VMs."""


class Offer(msgspec.Struct, frozen=True):
    """The devices of a node, in the order of GPUs by PCI address, profiles and memory slices."""

    devices: tuple[DraDevice, ...] = ()
    counter_sets: tuple[CounterSet, ...] = ()
    refusals: tuple[str, ...] = ()
    """A sentence for each GPU that is not offered, or only in part."""
    gpus: tuple[str, ...] = ()
    """PCI addresses of all GPUs of the node, offered or not. They divide it into slices."""
    families: dict[str, Family] = {}
    """By PCI address, for GPUs with MIG."""
    vm_gpus: tuple[str, ...] = ()
    """PCI addresses of the GPUs that serve VMs."""

    def device(self, name: str) -> DraDevice | None:
        return next((each for each in self.devices if each.name == name), None)


def offered_devices(
    inventory: Inventory,
    naming: DriverNaming,
    *,
    facts: Facts | None = None,
    mode_changes: ModeChanges = "without-reset",
    vms: Mapping[str, VmService] = NO_VMS,
) -> Offer:
    """Return what the node offers. ``vms`` are the GPUs that serve VMs, by PCI address.

    A GPU whose MIG mode is off offers its placements if a claim may enable it, and a GPU in MIG mode itself if a claim
    may disable it. One counter set excludes both at a time.
    """
    made = [
        _vm_gpu(inventory, gpu, common, vms[gpu.pci], mode_changes)
        if gpu.pci in vms
        else _pod_gpu(inventory, gpu, naming, common, facts, mode_changes)
        for gpu in sorted(inventory.gpus, key=lambda each: each.pci)
        for common in (common_attributes(gpu, facts),)
    ]
    return Offer(
        tuple(device for each in made for device in each.devices),
        tuple(one for each in made for one in each.counter_sets),
        tuple(text for each in made for text in each.refusals),
        tuple(sorted(gpu.pci for gpu in inventory.gpus)),
        {pci: family for each in made for pci, family in each.families.items()},
        tuple(sorted(gpu.pci for gpu in inventory.gpus if gpu.pci in vms)),
    )


def _vm_gpu(inventory: Inventory, gpu: Gpu, common: Attributes, service: VmService, mode_changes: ModeChanges) -> Offer:
    """Return what a GPU offers VMs."""
    if gpu.lost or not (gpu.uuid or gpu.passthrough):
        driver = (gpu.virtual.driver if gpu.virtual is not None else "") or "none"
        why = "it has fallen off the bus" if gpu.lost else f"its driver is {driver}, not NVIDIA's or vfio-pci"
        return Offer(refusals=(f"GPU {gpu.pci} is not offered: {why}",))
    family = _family(inventory, gpu)
    served = served_types(inventory, gpu, service, mode_changes)
    devices, counters = vm_devices(gpu, served, family, common)
    families = {gpu.pci: family} if family is not None else {}
    return Offer(devices, (counters,) if devices else (), served.refusals, families=families)


def _pod_gpu(
    inventory: Inventory,
    gpu: Gpu,
    naming: DriverNaming,
    common: Attributes,
    facts: Facts | None,
    mode_changes: ModeChanges,
) -> Offer:
    """Return what a GPU offers pods."""
    family = _family(inventory, gpu)
    refusal = _refusal(gpu, family)
    if refusal:
        return Offer(refusals=(f"GPU {gpu.pci} is not offered: {refusal}",))
    if family is None:
        return Offer((_whole(gpu, naming, common, whole_capacity(gpu, facts, None)),))
    totals = family_counters(family).totals
    counters = CounterSet(naming.counter_set(gpu), gpu.pci, totals)
    instances, whole = _modes(gpu, family, mode_changes)
    devices = list(_placements(gpu, family, naming, common)) if instances else []
    if whole:
        made = _whole(gpu, naming, common, whole_capacity(gpu, facts, family))
        devices.append(msgspec.structs.replace(made, counter_set=counters.name, uses=totals))
    refusals = () if instances and whole else (_part(gpu, instances),)
    return Offer(tuple(devices), (counters,), refusals, families={gpu.pci: family})


def is_warm(profile: Profile, instance: GpuInstance) -> bool:
    """Report whether a claim can have the instance as it is: it has no holder, and one compute instance covers it."""
    names = [compute.profile_id for compute in instance.compute_instances]
    return not instance.held and names == [profile.default_compute.id]


def _refusal(gpu: Gpu, family: Family | None) -> str:
    """Return why a GPU is not offered; "" if it is."""
    if gpu.lost:
        return "it has fallen off the bus"
    if gpu.involves_vms:
        return "VMs have it, or it is prepared for them"
    if gpu.minor < 0:
        return "its minor number, which is part of the device's name, is not known"
    if gpu.mig.enabled and family is None:
        return "it is in MIG mode, and its profiles are not known"
    return ""


def _family(inventory: Inventory, gpu: Gpu) -> Family | None:
    try:
        return inventory.family(gpu) if gpu.mig.capable else None
    except KeyError:
        return None


def _modes(gpu: Gpu, family: Family, mode_changes: ModeChanges) -> tuple[bool, bool]:
    """Return whether placements and the whole GPU are offered."""
    needs_reset = family.mode.change_needs_gpu_reset
    permitted = {"never": False, "without-reset": not needs_reset, "any": gpu.resettable or not needs_reset}
    may_change = permitted[mode_changes] and gpu.mig.current == gpu.mig.pending
    return gpu.mig.enabled or may_change, not gpu.mig.enabled or may_change


def _part(gpu: Gpu, instances: bool) -> str:
    offered = "only its MIG profiles" if instances else "only as a whole"
    why = "a change of MIG mode waits for a reset" if gpu.mig.current != gpu.mig.pending else "MIG mode does not change"
    return f"GPU {gpu.pci} is offered {offered}: {why}"


def _whole(gpu: Gpu, naming: DriverNaming, common: Attributes, capacity: dict[str, int]) -> DraDevice:
    attributes = whole_attributes(gpu) | common
    return DraDevice(naming.whole(gpu), gpu.uuid, gpu.pci, attributes=attributes, capacity=capacity)


def _placements(gpu: Gpu, family: Family, naming: DriverNaming, common: Attributes) -> Iterator[DraDevice]:
    uses = family_counters(family).instances
    existing = {(each.profile_id, each.place): each for each in gpu.instances}
    for profile in family.profiles:
        for start in profile.starts:
            instance = existing.get((profile.id, Placement(start, profile.size)))
            warm = instance is not None and is_warm(profile, instance)
            yield DraDevice(
                naming.instance(gpu, profile, start),
                gpu.uuid,
                gpu.pci,
                profile.name,
                profile.id,
                start,
                profile.size,
                instance_attributes(gpu, profile, start, warm) | common,
                instance_capacity(profile),
                naming.counter_set(gpu),
                uses[profile.id, start],
            )
