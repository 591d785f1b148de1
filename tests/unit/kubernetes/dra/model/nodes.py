"""Nodes for the tests of publications, with what the driver offers on them."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from aliquot.core.model.inventory import Holder, Inventory
from aliquot.kubernetes.dra.model.naming import NVIDIA_DRIVER, DriverNaming
from aliquot.kubernetes.dra.model.occupancy import find_occupancy
from aliquot.kubernetes.dra.model.offer import Offer, offered_devices
from aliquot.kubernetes.dra.model.ranking import PublishedChoice, PublishPolicy, choose_devices

NAMING = DriverNaming(NVIDIA_DRIVER)
A100 = "a100-sxm4-40gb"
H100 = "h100-80gb-sxm"


def offered(inventory: Inventory) -> Offer:
    return offered_devices(inventory, NAMING)


def desired(
    inventory: Inventory, allocated: Collection[str] = (), policy: PublishPolicy | None = None
) -> PublishedChoice:
    offer = offered(inventory)
    return choose_devices(offer, find_occupancy(inventory, offer, allocated), policy or PublishPolicy())


def names(found: PublishedChoice, profile: str | None) -> list[str]:
    return [each.name for each in found.devices if each.profile == profile]


def holding(inventory: Inventory, *, gpu: bool = False) -> Inventory:
    """Return the inventory with a process on all instances of the first GPU, or on the GPU itself."""
    process = (Holder("process", "42"),)
    first = inventory.gpus[0]
    instances = tuple(msgspec.structs.replace(each, held=True, holders=process) for each in first.instances)
    first = msgspec.structs.replace(first, **({"holders": process} if gpu else {"instances": instances}))
    return msgspec.structs.replace(inventory, gpus=(first, *inventory.gpus[1:]))
