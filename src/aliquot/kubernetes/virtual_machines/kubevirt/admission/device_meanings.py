"""The meaning of the resources that a VM requests: a vGPU of a type, a whole GPU, or a foreign device."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import msgspec

from aliquot.core.model import vgpu_types as vgpu
from aliquot.core.model.inventory import FrameworkName, Gpu
from aliquot.core.model.vgpu_types import TIME_SLICED, VgpuTable, VgpuType
from aliquot.core.planner.vgpu.vm_rules import MAX_VGPUS_PER_VM, VmDevice
from aliquot.kubernetes.kinds import harvester_names as names
from aliquot.kubernetes.kinds.harvester import VGPUDevice
from aliquot.kubernetes.kinds.kubevirt import DeviceRequest
from aliquot.kubernetes.virtual_machines.harvester.admission.snapshot import AdmissionSnapshot
from aliquot.kubernetes.virtual_machines.kubevirt.capacity import Capacity


class VmClusterState(msgspec.Struct, frozen=True):
    """The cluster state that a VM is reviewed against."""

    snapshot: AdmissionSnapshot = AdmissionSnapshot()
    permitted: frozenset[str] | None = None
    """The resources that KubeVirt's settings permit; None if the settings could not be read."""
    capacity: Capacity = Capacity({})
    """Counts VMs that were admitted moments ago, too."""


class ResourceMeaning(msgspec.Struct, frozen=True):
    """The meaning of a resource."""

    type: VgpuType | None = None
    """None for a whole function."""
    product: str = ""
    frameworks: frozenset[FrameworkName] = frozenset()
    """The frameworks of the vGPUs that are offered as the resource."""


def resource_meanings(snapshot: AdmissionSnapshot) -> dict[str, ResourceMeaning]:
    """Return every resource as which devices of the cluster are, or should be, offered."""
    found: dict[str, ResourceMeaning] = {
        function.status.resource_name: ResourceMeaning()
        for function in snapshot.functions.values()
        if function.status.resource_name
    }
    for device in snapshot.vgpus.values():
        name = device.status.configured or (device.spec.type_name if device.spec.enabled else "")
        if name:
            resource = names.vgpu_resource(name)
            before = found.get(resource, ResourceMeaning()).frameworks
            found[resource] = _vgpu_meaning(name, before | {framework_of(device)} - {""})
    return found


def framework_of(device: VGPUDevice) -> FrameworkName:
    """Return the vGPU framework of a virtual function, by the form of the type ids in its status; "" if it has none
    yet.
    """
    type_codes = (device.status.uuid, *device.status.available_types.values())
    first = next((each for each in type_codes if each), "")
    return ("vendor-vfio" if first.isdecimal() else "mdev") if first else ""


def _vgpu_meaning(name: str, frameworks: frozenset[FrameworkName]) -> ResourceMeaning:
    known = _types().get(name)
    if known is None:
        series = name[-1:] if name[-1:] in "ABCQ" else ""
        return ResourceMeaning(_unlisted(name, series), name.rpartition("-")[0], frameworks)
    return ResourceMeaning(known[1], known[0].name, frameworks)


def _unlisted(name: str, series: str = "") -> VgpuType:
    """Return a vGPU type of which only the name is known."""
    return VgpuType(name, series, TIME_SLICED, 0, 0, per_vm=MAX_VGPUS_PER_VM)


@cache
def _types() -> Mapping[str, tuple[VgpuTable, VgpuType]]:
    """Return the types by full name. A name that several boards share (``NVIDIA DC-1-2Q``) means the first board's."""
    found: dict[str, tuple[VgpuTable, VgpuType]] = {}
    for table in vgpu.tables():
        for each in table.types:
            found.setdefault(each.name, (table, each))
    return found


@cache
def type_names_by_resource() -> Mapping[str, str]:
    """Return every vGPU type in the tables, by its resource."""
    return {names.vgpu_resource(name): name for name in _types()}


def vm_device(entry: DeviceRequest, meaning: ResourceMeaning, snapshot: AdmissionSnapshot) -> VmDevice:
    """Return the entry in the form that the planner's rules read.

    The device is not known before the VM starts: each entry counts as a device of its own, and its name gives a node
    only if it is the name of an object. KubeVirt treats ``display: {}`` and ``ramFB: {}`` as true. What a DRA claim
    provides is not known: perhaps a vGPU with a display.
    """
    display = entry.options.display if entry.options is not None else None
    ram_fb = display.ram_fb if display is not None else None
    return VmDevice(
        gpu=Gpu(pci=entry.name, uuid="", index=0, product=meaning.product),
        type=_unlisted(f"DRA claim {entry.claim_name}") if entry.claim_name else meaning.type,
        ramfb=None if ram_fb is None else ram_fb.enabled is not False,
        display=None if display is None else display.enabled is not False,
        node=node_of_device(entry.name, snapshot),
    )


def node_of_device(name: str, snapshot: AdmissionSnapshot) -> str:
    """Return the node of the device whose object has this name; "" for a name that the user chose."""
    if name in snapshot.vgpus:
        return snapshot.vgpus[name].spec.node_name
    for found in (snapshot.functions.get(name), snapshot.usb.get(name)):
        if found is not None:
            return found.status.node_name
    return ""
