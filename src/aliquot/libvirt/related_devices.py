"""Other facts that matter to a VM, read from libvirt."""

from __future__ import annotations

from aliquot.core.model.inventory import Inventory
from aliquot.core.planner.vgpu.vm_rules import VmPolicy
from aliquot.foundation.callbacks import Report
from aliquot.libvirt.device_rules import VmContext
from aliquot.libvirt.errors import LibvirtError
from aliquot.libvirt.models import LibvirtDomain
from aliquot.libvirt.port import Libvirt


def read_context(
    libvirt: Libvirt,
    inventory: Inventory,
    domains: tuple[LibvirtDomain, ...],
    policy: VmPolicy,
    report: Report,
) -> VmContext:
    """Read the context of a VM. ``policy`` is that of ``VmContext``. ``report`` gets a sentence if something cannot be
    read.
    """
    try:
        mdevs = libvirt.mdevs()
    except LibvirtError as error:
        report(f"libvirt's mdevs are not considered: {error.brief}")
        mdevs = ()
    foreign = {gpu.pci: gpu.virtual.group_peers for gpu in inventory.gpus if gpu.virtual is not None}
    return VmContext(domains, mdevs, foreign, policy, libvirt.version())
