"""What else bears on a machine, asked of libvirt."""

from __future__ import annotations

from collections.abc import Callable

from aliquot.core.model.inventory import Inventory
from aliquot.libvirt.device_rules import Around
from aliquot.libvirt.errors import LibvirtError
from aliquot.libvirt.models import Domain
from aliquot.libvirt.port import Libvirt


def around(
    libvirt: Libvirt, inventory: Inventory, domains: tuple[Domain, ...], policy: str, say: Callable[[str], None]
) -> Around:
    """``policy`` as ``Around`` has it; ``say`` gets a sentence where something could not be asked."""
    try:
        mdevs = libvirt.mdevs()
    except LibvirtError as error:
        say(f"libvirt's mdevs are not considered: {error.brief}")
        mdevs = ()
    foreign = {gpu.pci: tuple(map(str, gpu.virtual.strangers)) for gpu in inventory.gpus if gpu.virtual is not None}
    return Around(domains, mdevs, foreign, policy, libvirt.version())
