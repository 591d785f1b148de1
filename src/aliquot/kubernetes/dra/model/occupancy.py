"""The devices and instances that are taken on the GPUs of a node, and the devices that they block.

No counter knows of an instance that has a holder but no claim. Its counters stay as they are, and what it blocks is not
published. That is exact: instances are legal together if each two of them are, in every family.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from aliquot.core.model.inventory import Inventory
from aliquot.kubernetes.dra.model.counters import fits, taken
from aliquot.kubernetes.dra.model.device import DraDevice, Place
from aliquot.kubernetes.dra.model.offer import Offer
from aliquot.kubernetes.dra.model.vm_devices import KeepsInstance, others_use


class Occupancy(msgspec.Struct, frozen=True):
    """The devices and instances that are taken on a node."""

    allocated: frozenset[str] = frozenset()
    """Names of the devices that claims have."""
    held: frozenset[Place] = frozenset()
    """Instances with holders that no claim accounts for: jobs, containers, pods of a device plugin, processes."""
    kept: frozenset[Place] = frozenset()
    """Idle instances that must stay, since others created them. A claim may get them as they are."""
    idle: frozenset[Place] = frozenset()
    """All other instances. They are destroyed if their room is needed."""
    closed: frozenset[str] = frozenset()
    """GPUs (PCI addresses) on which nothing is free."""
    no_whole: frozenset[str] = frozenset()
    """GPUs (PCI addresses) that cannot be allocated as a whole, since a client uses them outside any instance."""


def find_occupancy(
    inventory: Inventory,
    offer: Offer,
    allocated: Collection[str],
    keeps: KeepsInstance = lambda gpu, instance: False,
    unhealthy: Collection[str] = (),
) -> Occupancy:
    """Return what is taken. ``keeps`` reports whether an idle instance must stay. Nothing is free on ``unhealthy`` GPUs
    (PCI addresses).
    """
    claims = {device.place for device in offer.devices if device.name in allocated}
    known = {device.place for device in offer.devices}
    held: set[Place] = set()
    kept: set[Place] = set()
    idle: set[Place] = set()
    closed = set(unhealthy)
    no_whole: set[str] = set()
    for gpu in inventory.gpus:
        if gpu.pci in offer.vm_gpus:
            devices = [device for device in offer.devices if device.pci == gpu.pci]
            if others_use(inventory, gpu, devices, allocated, keeps):
                closed.add(gpu.pci)
            continue
        if (gpu.pci, -1, 0) in claims:  # whatever is on it belongs to the claim
            continue
        if gpu.holders:
            (no_whole if gpu.mig.enabled else closed).add(gpu.pci)
        for instance in gpu.instances:
            place = (gpu.pci, instance.profile_id, instance.place.start)
            if place in claims:
                continue
            stays = instance.held or keeps(gpu, instance)
            if stays and place not in known:
                closed.add(gpu.pci)
            (held if instance.held else kept if stays else idle).add(place)
    return Occupancy(
        frozenset(allocated), frozenset(held), frozenset(kept), frozenset(idle), frozenset(closed), frozenset(no_whole)
    )


class Blocking:
    """Answers which devices of an offer can be allocated now, each of them alone."""

    def __init__(self, offer: Offer, occupancy: Occupancy) -> None:
        self._occupancy = occupancy
        self._totals = {each.name: each.counters for each in offer.counter_sets}
        fixed = occupancy.held | occupancy.kept
        self.fixed = [d for d in offer.devices if d.name in occupancy.allocated or d.place in fixed]
        """Devices whose room is taken."""
        self._taken = {name: taken(d.uses for d in self.fixed if d.counter_set == name) for name in self._totals}
        self._masks: dict[str, int] = {}
        for device in self.fixed:
            self._masks[device.pci] = self._masks.get(device.pci, 0) | device.mask

    def mask(self, pci: str) -> int:
        """Return the memory slices of a GPU whose room is taken, as bits."""
        return self._masks.get(pci, 0)

    def free(self, device: DraDevice, others: Sequence[DraDevice] = ()) -> bool:
        """Report whether a claim can have the device now, or after ``others`` are allocated too."""
        occupancy = self._occupancy
        if device.name in occupancy.allocated or device.place in occupancy.held or device.pci in occupancy.closed:
            return False
        if device.whole and device.pci in occupancy.no_whole:
            return False
        if device.place in occupancy.kept:
            return True
        if not device.counter_set:
            return True
        before = taken(
            [
                self._taken[device.counter_set],
                *(other.uses for other in others if other.counter_set == device.counter_set),
            ]
        )
        return fits(device.uses, before, self._totals[device.counter_set])
