"""Who has what, as libvirt knows it: the devices of running machines."""

from __future__ import annotations

from aliquot.core.model.inventory import Holder, Inventory
from aliquot.foundation.callbacks import ReadFile
from aliquot.libvirt.identify import device_names, identify_device
from aliquot.libvirt.models import LibvirtDomain
from aliquot.libvirt.port import Libvirt

_PIDS = "/run/libvirt/qemu"
"""Where libvirt's system daemon writes ``<name>.pid``."""


def read_holders(libvirt: Libvirt, inventory: Inventory, read: ReadFile | None = None) -> dict[str, Holder]:
    """Holders by mdev UUID and by PCI address (of virtual functions and whole GPUs), both where a device has both.

    The holder's id is the pid of the machine's QEMU where ``read`` finds it. Else it is the machine's UUID and never
    libvirt's own number: whoever ends a holder takes a number for a pid.
    """
    found: dict[str, Holder] = {}
    for domain in libvirt.domains():
        if not domain.running:
            continue
        holder = Holder("vm", _pid(domain, read) or domain.uuid, domain.name)
        for hostdev in domain.live:
            device = identify_device(inventory, hostdev)
            if device.in_inventory:
                found |= dict.fromkeys(device_names(device), holder)
    return found


def _pid(domain: LibvirtDomain, read: ReadFile | None) -> str:
    if read is None:
        return ""
    try:
        text = read(f"{_PIDS}/{domain.name}.pid").strip()
        return text if text.isdigit() and domain.name in read(f"/proc/{text}/cmdline") else ""
    except OSError:
        return ""
