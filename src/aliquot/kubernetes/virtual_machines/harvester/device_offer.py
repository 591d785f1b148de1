"""The devices that a node's device plugins offer to VMs: configured vGPUs and functions that are bound to VFIO. Pure.

A vGPU is offered once its object states that it is configured, and while it is still requested. A vGPU that is being
disabled or gets another type is not offered. A function that could carry a vGPU but has none is not advertised: four of
an A2's 16 functions can have an A2-4Q, and the other twelve are not capacity.

Sources: the variables that virt-launcher reads (KubeVirt, pkg/virt-launcher), and the device plugins of
harvester/pcidevices (names, variables, device files).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from aliquot.core.model.inventory import Gpu, Inventory, Vgpu
from aliquot.core.model.pci import PciFunction
from aliquot.kubernetes.gpu.device_resources import Delivery, DeviceResource, ResourceDevice, ResourceOffer
from aliquot.kubernetes.kinds import harvester_names as names
from aliquot.kubernetes.kinds.harvester import VGPUDevice
from aliquot.kubernetes.kinds.harvester_peripherals import QEMU_USER
from aliquot.kubernetes.virtual_machines.harvester.node_view import NodeView, Objects
from aliquot.kubernetes.virtual_machines.harvester.other_functions import busy_peers
from aliquot.kubernetes.virtual_machines.harvester.peripherals.usb_offer import usb_resources
from aliquot.kubernetes.virtual_machines.harvester.physical_gpus import vgpu_objects
from aliquot.kubernetes.virtual_machines.harvester.vgpu_slots import physical_address, vgpus_by_address

VFIO_PCI = "vfio-pci"
CONTROL = "/dev/vfio/vfio"


class _OfferedDevice(msgspec.Struct, frozen=True):
    """A device for the offer."""

    resource: str
    variable: str
    id: str
    gpu: str
    group: int | None
    index: str
    numa: int | None
    problem: str = ""
    """Why the device cannot be allocated now; "" if it can."""


def offer(
    view: NodeView,
    objects: Objects,
    groups: Mapping[str, int],
    unhealthy: frozenset[str] = frozenset(),
    *,
    owner: int | None = QEMU_USER,
) -> ResourceOffer:
    """Return what this node offers now, by resource and address.

    ``groups`` are the IOMMU groups of mdevs by UUID, ``unhealthy`` the UUIDs of GPUs and vGPUs that must not be
    allocated, ``owner`` the user that must own the files of USB devices. ``refusals`` of the result are sentences about
    devices that are listed but not available.
    """
    functions = {function.address: function for function in view.functions}
    if view.inventory is None:
        vgpus = list(_vgpus_without_driver(view, objects, functions))
    else:
        vgpus = list(_offered_vgpus(view, objects, groups, unhealthy))
    found = [*vgpus, *_passthrough_functions(view, objects, functions)]
    named: dict[str, list[ResourceDevice]] = {}
    for each in sorted(found, key=lambda one: (one.resource, one.gpu, one.index)):
        named.setdefault(each.resource, []).append(_device(each))
    resources = (
        *(DeviceResource(name, tuple(devices)) for name, devices in named.items()),
        *usb_resources(view, objects, owner),
    )
    return ResourceOffer(
        resources, tuple(f"{each.id} ({each.resource}): {each.problem}" for each in found if each.problem)
    )


def mdev_functions(inventory: Inventory | None) -> dict[str, str]:
    """Return the UUID of every mdev with its virtual function. ``offer`` needs the IOMMU groups of these mdevs."""
    gpus = inventory.gpus if inventory is not None else ()
    return {vgpu.uuid: vgpu.function for gpu in gpus if not gpu.uses_vendor_vfio for vgpu in gpu.vgpus if vgpu.uuid}


def object_names(view: NodeView, objects: Objects) -> dict[str, str]:
    """Map device ids (UUIDs of mdevs, addresses of functions) to the names of their objects."""
    found = {function.address: names.object_name(view.node, function.address) for function in view.functions}
    for name, vgpu in objects.vgpus.items():
        found[vgpu.spec.address] = name
        if "-" in vgpu.status.uuid:  # with vendor-specific VFIO it is the number of the type
            found[vgpu.status.uuid] = name
    found |= {
        vgpu.uuid: names.object_name(view.node, address)
        for gpu, address, vgpu in _vgpus_with_addresses(view, objects)
        if not gpu.uses_vendor_vfio
    }
    return {key: name for key, name in found.items() if key}


def _vgpus_with_addresses(view: NodeView, objects: Objects) -> Iterator[tuple[Gpu, str, Vgpu]]:
    """Yield every vGPU with its GPU and the address that its object has."""
    functions = {function.address: function for function in view.functions}
    for gpu in view.inventory.gpus if view.inventory is not None else ():
        function = functions.get(gpu.pci)
        if function is not None:
            by_address = vgpus_by_address(function, gpu, vgpu_objects(view.node, objects, function))
            yield from ((gpu, address, vgpu) for address, vgpu in by_address.items())


def _offered_vgpus(
    view: NodeView, objects: Objects, groups: Mapping[str, int], unhealthy: frozenset[str]
) -> Iterator[_OfferedDevice]:
    functions = {function.address: function for function in view.functions}
    for gpu, address, vgpu in _vgpus_with_addresses(view, objects):
        vgpu_object = objects.vgpus.get(names.object_name(view.node, address))
        if vgpu_object is None or not _is_settled(vgpu_object) or not _has_type(vgpu, vgpu_object.status.configured):
            continue
        function, vendor = functions.get(vgpu.function), gpu.uses_vendor_vfio
        group = (function.iommu_group if function else None) if vendor else groups.get(vgpu.uuid)
        yield _offered_vgpu(
            vgpu_object,
            vgpu.function if vendor else vgpu.uuid,
            group=group,
            index=_index(gpu, address),
            numa=_numa(function, functions.get(gpu.pci)),
            problem=_device_problem(gpu, vgpu, group, unhealthy),
        )


def _index(gpu: Gpu, address: str) -> str:
    """Return the position of a vGPU on its GPU, for sorting: the number of its virtual function or slot."""
    slot = address.rpartition("/")[2] if "/" in address else ""
    functions = gpu.virtual.functions if gpu.virtual is not None else ()
    number = int(slot) if slot else next((f.number for f in functions if f.pci == address), 0)
    return f"{number:03}"


def _is_settled(vgpu_object: VGPUDevice) -> bool:
    """Report whether the vGPU is configured and should stay as it is."""
    spec, status = vgpu_object.spec, vgpu_object.status
    stays = spec.enabled and vgpu_object.metadata.deletion_timestamp is None
    return stays and status.state == names.CONFIGURED and spec.type_name == status.configured != ""


def _has_type(vgpu: Vgpu, type_name: str) -> bool:
    """Report whether a vGPU has this type. With vendor-specific VFIO, the driver of a full GPU reports only type
    numbers.
    """
    return vgpu.type in (type_name, f"type {vgpu.type_id}")


def _device_problem(gpu: Gpu, vgpu: Vgpu, group: int | None, unhealthy: frozenset[str]) -> str:
    if gpu.lost:
        return f"GPU {gpu.pci} has fallen off the bus"
    if not {gpu.uuid, vgpu.uuid}.isdisjoint(unhealthy):
        return f"GPU {gpu.pci} reported an error: see its XIDs in the kernel's log"
    return "" if group is not None else "it has no IOMMU group: check that the IOMMU is on"


def _numa(*functions: PciFunction | None) -> int | None:
    return next((each.numa for each in functions if each is not None and each.numa is not None), None)


def _offered_vgpu(
    vgpu_object: VGPUDevice, device: str, *, group: int | None, index: str, numa: int | None, problem: str
) -> _OfferedDevice:
    resource = names.vgpu_resource(vgpu_object.status.configured)
    prefix = names.PCI_ENV if device == vgpu_object.spec.address else names.MDEV_ENV
    return _OfferedDevice(
        resource=resource,
        variable=names.environment(resource, prefix),
        id=device,
        gpu=vgpu_object.spec.parent,
        group=group,
        index=index,
        numa=numa,
        problem=problem,
    )


def _vgpus_without_driver(
    view: NodeView, objects: Objects, functions: Mapping[str, PciFunction]
) -> Iterator[_OfferedDevice]:
    """Yield the configured vGPUs as unhealthy while no driver answers: they may exist, and VMs that have one keep
    running.
    """
    for vgpu_object in objects.vgpus.values():
        function = functions.get(physical_address(vgpu_object.spec.address))
        if function is None or not _is_settled(vgpu_object):
            continue
        device = vgpu_object.status.uuid if "-" in vgpu_object.status.uuid else vgpu_object.spec.address
        numa, index = _numa(function, functions.get(vgpu_object.spec.parent)), vgpu_object.spec.address
        why = view.driver_error or "no GPU driver answers"
        yield _offered_vgpu(vgpu_object, device, group=None, index=index, numa=numa, problem=why)


def _passthrough_functions(
    view: NodeView, objects: Objects, functions: Mapping[str, PciFunction]
) -> Iterator[_OfferedDevice]:
    for name, claim in objects.claims.items():
        function, device = functions.get(claim.spec.address), objects.functions.get(name)
        reserved = claim.metadata.annotations.get(names.SKIP_BINDING_ANNOTATION) == "true"
        leaving = claim.metadata.deletion_timestamp is not None or not claim.status.passthrough_enabled
        if function is None or device is None or reserved or leaving or not device.status.resource_name:
            continue
        resource = device.status.resource_name
        yield _OfferedDevice(
            resource=resource,
            variable=names.environment(resource, names.PCI_ENV),
            id=function.address,
            gpu=function.address,
            group=function.iommu_group,
            index="",
            numa=function.numa,
            problem=_passthrough_problem(view, function),
        )


def _passthrough_problem(view: NodeView, function: PciFunction) -> str:
    """Return why VFIO would not let a VM open a function; "" if it would."""
    if function.iommu_group is None:
        return "it has no IOMMU group: check that the IOMMU is on"
    if function.driver != VFIO_PCI:
        return f"its driver is {function.driver or 'none'}, not {VFIO_PCI}"
    busy = ", ".join(f"{other.address} ({other.driver})" for other in busy_peers(view, function))
    return f"other drivers use its IOMMU group: {busy}" if busy else ""


def _device(found: _OfferedDevice) -> ResourceDevice:
    paths = (f"/dev/vfio/{found.group}",) if found.group is not None else ()
    return ResourceDevice(
        id=found.id,
        gpu=found.gpu,
        paths=paths,
        index=found.index,
        numa=found.numa,
        healthy=not found.problem,
        delivery=Delivery(found.variable, (CONTROL,)),
    )
