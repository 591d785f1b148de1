"""Persistent mdevs: libvirt keeps a definition through mdevctl, and starts it when the parent function appears. So a
host that has only libvirt has its vGPUs again after a reboot.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from aliquot.core.model.inventory import Gpu, Inventory, Vgpu
from aliquot.errors import BlockedError
from aliquot.foundation.callbacks import Report
from aliquot.libvirt import nodedev_xml as nodexml
from aliquot.libvirt.errors import LibvirtError
from aliquot.libvirt.models import NodeDevice
from aliquot.libvirt.port import Libvirt

DISCOVERY_S = 20.0
"""Time in seconds for libvirt to see a new function, which an event reports, and a new definition of an existing
device. It watches mdevctl's folder, and until then takes the device for one without a definition (libvirt 9.0).
"""

T = TypeVar("T")


class LibvirtMdev(msgspec.Struct, frozen=True):
    """A vGPU that libvirt can keep."""

    uuid: str
    function: str
    """PCI address of its parent function."""
    type: str
    """Directory of its type (``nvidia-746``)."""
    type_name: str
    gpu: str
    mig_backed: bool = False
    exists: bool = msgspec.field(default=True, name="there")
    """True if the mdev exists now."""
    node: str = ""
    """libvirt's name of it, empty if libvirt does not know it."""
    active: bool = False
    persistent: bool = False
    autostart: bool = False

    @property
    def state(self) -> str:
        words = ["active" if self.active else "inactive" if self.persistent else "not known to libvirt"]
        words += ["persistent"] if self.persistent else []
        return ", ".join(words + (["autostart"] if self.autostart else []))


def mdevs(inventory: Inventory, nodes: Sequence[NodeDevice]) -> tuple[LibvirtMdev, ...]:
    """Return the mdevs of the node and those lost in a reboot, with libvirt's state of them."""
    known = {n.uuid: n for n in nodes}
    found = []
    for gpu in inventory.gpus:
        if gpu.uses_vendor_vfio:
            continue
        gone = gpu.virtual.recorded_vgpus if gpu.virtual else ()
        present = {v.uuid for v in gpu.vgpus}
        found += [_mdev(inventory, gpu, v, known, exists=True) for v in gpu.vgpus if v.uuid]
        found += [_mdev(inventory, gpu, v, known, exists=False) for v in gone if v.uuid and v.uuid not in present]
    return tuple(found)


def _mdev(inventory: Inventory, gpu: Gpu, vgpu: Vgpu, known: dict[str, NodeDevice], *, exists: bool) -> LibvirtMdev:
    node = known.get(vgpu.uuid)
    table = inventory.vgpu_table(gpu)
    vgpu_type = table.by_id.get(vgpu.type_id) if table else None
    return LibvirtMdev(
        uuid=vgpu.uuid,
        function=vgpu.function,
        type=f"nvidia-{vgpu.type_id}",
        type_name=vgpu.type,
        gpu=gpu.pci,
        mig_backed=vgpu.gpu_instance is not None or (vgpu_type is not None and vgpu_type.mig_backed),
        exists=exists,
        node=node.name if node else "",
        active=node.active if node else False,
        persistent=node.persistent if node else False,
        autostart=node.autostart if node else False,
    )


def select_mdevs(inventory: Inventory, nodes: Sequence[NodeDevice], names: Sequence[str]) -> tuple[LibvirtMdev, ...]:
    """Return the mdevs named by UUID or function; all of them if no name is given. Raises BlockedError."""
    every = mdevs(inventory, nodes)
    if not every:
        raise _no_mdev_error(inventory)
    if not names:
        return every
    found = []
    for name in names:
        selected = next((m for m in every if name.lower() in (m.uuid, m.function)), None)
        if selected is None:
            raise BlockedError(f"mdev {name} not found", code="NO_MDEV", next_step="aliquot libvirt nodedev list")
        found.append(selected)
    return tuple(dict.fromkeys(found))


def _no_mdev_error(inventory: Inventory) -> BlockedError:
    if any(g.uses_vendor_vfio for g in inventory.gpus):
        return BlockedError(
            "this kernel has no mdevs (vendor-specific VFIO): vGPUs are types of functions, which libvirt cannot keep",
            code="NO_MDEV",
            details=("after a reboot the systemd unit of 'aliquot restore --boot' sets the types again",),
            next_step="aliquot restore --boot",
        )
    return BlockedError("this node has no vGPU to define", code="NO_MDEV", next_step="aliquot vgpu list")


def define(libvirt: Libvirt, mdev: LibvirtMdev, report: Report) -> str:
    """Define an mdev, unless it is defined already. Return libvirt's name of it."""
    if mdev.persistent:
        return mdev.node
    text = nodexml.build(mdev.function, mdev.type, mdev.uuid)
    name = _retry(lambda: libvirt.define_mdev(text), "NO_PARENT")
    report(f"defined {mdev.uuid}, {mdev.type_name} on {mdev.function}")
    return name or mdev.node


def _retry(call: Callable[[], T], *codes: str) -> T:
    """Repeat a call for up to ``DISCOVERY_S`` while libvirt fails with one of these codes, because it has not seen a
    device yet.
    """
    deadline = time.monotonic() + DISCOVERY_S
    while True:
        try:
            return call()
        except LibvirtError as refused:
            if refused.code not in codes or time.monotonic() > deadline:
                raise
        time.sleep(0.2)


def start(libvirt: Libvirt, mdev: LibvirtMdev, report: Report) -> None:
    """Start a defined mdev that does not exist yet. Raises LibvirtError for one without a definition."""
    if mdev.active or mdev.exists:
        return
    if not mdev.persistent:
        raise LibvirtError(
            f"libvirt has no definition of {mdev.uuid}",
            next_step=f"aliquot libvirt nodedev define {mdev.uuid}",
            code="NOT_DEFINED",
        )
    libvirt.start_mdev(mdev.node)
    report(f"started {mdev.uuid}, {mdev.type_name} on {mdev.function}")


def autostart(libvirt: Libvirt, mdev: LibvirtMdev, report: Report) -> None:
    """Set autostart of an mdev, so that it starts whenever its function appears. Define it first if necessary."""
    if mdev.autostart:
        return
    if mdev.mig_backed:
        raise LibvirtError(
            f"{mdev.type_name} needs a GPU instance, which libvirt does not create: autostart would fail at every boot",
            next_step="let the boot service create both: aliquot restore --boot",
            code="MIG_TYPE",
        )
    name = define(libvirt, mdev, report)
    # Between mdevctl's event and the kernel's event for one mdev, libvirt does not know it for a moment.
    _retry(lambda: libvirt.autostart_mdev(name), "NOT_DEFINED", "NO_MDEV")
    report(f"libvirt starts {mdev.uuid} whenever {mdev.function} appears")


def undefine(libvirt: Libvirt, mdev: LibvirtMdev, report: Report) -> None:
    """Remove an mdev's definition. The mdev itself stays as it is."""
    if not mdev.persistent:
        return
    libvirt.undefine_mdev(mdev.node)
    report(f"removed libvirt's definition of {mdev.uuid}")
