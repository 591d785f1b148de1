"""All devices that the GPUs of a node offer, whatever is allocated or exists now."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

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
from aliquot.kubernetes.dra.model.device import CounterSet, DraDevice
from aliquot.kubernetes.dra.model.naming import DriverNaming

ModeChanges = Literal["never", "without-reset", "any"]
"""Which changes of MIG mode a claim may cause. Ampere needs a reset for it, Hopper and later do not."""


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

    def device(self, name: str) -> DraDevice | None:
        return next((each for each in self.devices if each.name == name), None)


def offered_devices(
    inventory: Inventory,
    naming: DriverNaming,
    *,
    facts: Facts | None = None,
    mode_changes: ModeChanges = "without-reset",
) -> Offer:
    """Return what the node offers.

    A GPU whose MIG mode is off offers its placements if a claim may enable it, and a GPU in MIG mode itself if a claim
    may disable it. One counter set excludes both at a time.
    """
    devices: list[DraDevice] = []
    sets: list[CounterSet] = []
    refusals: list[str] = []
    families: dict[str, Family] = {}
    for gpu in sorted(inventory.gpus, key=lambda each: each.pci):
        family = _family(inventory, gpu)
        refusal = _refusal(gpu, family)
        if refusal:
            refusals.append(f"GPU {gpu.pci} is not offered: {refusal}")
            continue
        common = common_attributes(gpu, facts)
        if family is None:
            devices.append(_whole(gpu, naming, common, whole_capacity(gpu, facts, None)))
            continue
        families[gpu.pci] = family
        totals = family_counters(family).totals
        sets.append(CounterSet(naming.counter_set(gpu), gpu.pci, totals))
        instances, whole = _modes(gpu, family, mode_changes)
        if instances:
            devices += _placements(gpu, family, naming, common)
        if whole:
            made = _whole(gpu, naming, common, whole_capacity(gpu, facts, family))
            devices.append(msgspec.structs.replace(made, counter_set=naming.counter_set(gpu), uses=totals))
        if not (instances and whole):
            refusals.append(_part(gpu, instances))
    addresses = tuple(sorted(gpu.pci for gpu in inventory.gpus))
    return Offer(tuple(devices), tuple(sets), tuple(refusals), addresses, families)


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
