"""Nodes that publish GPUs by ``kubernetes/dra/model``, and a check of what claims got against the raw tables."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any

import msgspec

from aliquot.core.model.inventory import Inventory
from aliquot.kubernetes.client.object_base import ApiStruct
from aliquot.kubernetes.dra.model.device import DraDevice
from aliquot.kubernetes.dra.model.device_classes import device_classes
from aliquot.kubernetes.dra.model.naming import DriverNaming
from aliquot.kubernetes.dra.model.occupancy import find_occupancy
from aliquot.kubernetes.dra.model.offer import offered_devices
from aliquot.kubernetes.dra.model.publication import Publication, next_publication
from aliquot.kubernetes.dra.model.ranking import PublishPolicy, choose_devices
from aliquot.kubernetes.dra.model.slices import build_slices
from laws.oracle import raw

JSON = dict[str, Any]


class FleetNode:
    """A node whose publication follows what is allocated.

    Attributes:
        published: the slices as the API shows them
    """

    def __init__(
        self, name: str, inventory: Inventory, naming: DriverNaming, policy: PublishPolicy | None = None
    ) -> None:
        self.name, self.inventory, self.naming = name, inventory, naming
        self.policy = policy or PublishPolicy()
        self.offer = offered_devices(inventory, naming)
        self.publication = Publication()
        self.published: list[JSON] = []

    @property
    def pool(self) -> str:
        return self.naming.pool(self.name)

    def publish(self, allocated: Collection[str], now: datetime) -> bool:
        """Publish for a node on which claims have the ``allocated`` devices. Report whether that changes anything."""
        seen = {device.name for device in self.publication.devices}
        occupancy = find_occupancy(self.inventory, self.offer, allocated)
        desired = choose_devices(self.offer, occupancy, self.policy, seen)
        previous = self.publication
        self.publication = next_publication(previous, desired, allocated, now, self.policy.layout)
        built = build_slices(self.publication, self.naming, self.name, layout=self.policy.layout)
        self.published = [to_json(one) for one in built]
        return self.publication != previous

    def illegal(self, allocated: Collection[str]) -> list[str]:
        """Return the GPUs that cannot have the devices that claims got, by the reviewed tables of the catalog."""
        by_gpu: dict[str, list[DraDevice]] = {}
        for name in allocated:
            device = self.offer.device(name)
            assert device is not None, name
            by_gpu.setdefault(device.pci, []).append(device)
        families = {gpu.pci: gpu.family or "" for gpu in self.inventory.gpus}
        return [
            f"{self.name} {pci}: {sorted(one.name for one in found)}"
            for pci, found in by_gpu.items()
            if not _possible(families[pci], found)
        ]


def _possible(family: str, devices: list[DraDevice]) -> bool:
    if any(device.whole for device in devices):
        return len(devices) == 1
    state = frozenset((device.profile or "", device.start) for device in devices)
    return len(state) == len(devices) and raw.legal(family, state)


def classes(nodes: Collection[FleetNode]) -> dict[str, JSON]:
    """Return the device classes for these nodes, by name."""
    naming = next(iter(nodes)).naming
    families = (family for node in nodes for family in node.offer.families.values())
    profiles = {profile.name for family in families for profile in family.profiles}
    return {one.name: to_json(one) for one in device_classes(naming, profiles)}


def to_json(value: ApiStruct) -> JSON:
    """Return an object as it is sent to the API server."""
    found: JSON = msgspec.json.decode(msgspec.json.encode(value))
    return found
