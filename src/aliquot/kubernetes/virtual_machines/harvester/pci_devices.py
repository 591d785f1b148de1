"""PCIDevices: the node's GPUs and their IOMMU group peers on the PCI bus, or all of its functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from aliquot.core.model.pci import PciFunction
from aliquot.kubernetes.kinds.harvester import NVIDIA, PCIDevice, PCIDeviceSpec, PCIDeviceStatus, passes_through
from aliquot.kubernetes.kinds.harvester_names import (
    DRIVER_ANNOTATION,
    NODE_LABEL,
    PARENT_LABEL,
    PARENT_NETWORK_LABEL,
    RESOURCE_ANNOTATION,
    object_name,
    pci_resource,
    vendor_domain,
    vgpu_resource,
)
from aliquot.kubernetes.virtual_machines.harvester.conditions import condition
from aliquot.kubernetes.virtual_machines.harvester.gpu_decision import GpuOutcome
from aliquot.kubernetes.virtual_machines.harvester.node_view import NodeView, Objects
from aliquot.kubernetes.virtual_machines.harvester.object_draft import Draft, labels
from aliquot.kubernetes.virtual_machines.harvester.other_functions import is_listed, other_functions
from aliquot.kubernetes.virtual_machines.harvester.reasons import ObjectVerdict
from aliquot.kubernetes.virtual_machines.harvester.vgpu_assignment import is_owned

_BRIDGE = "0604"


def drafts(view: NodeView, objects: Objects, owners: Mapping[str, GpuOutcome]) -> Iterator[Draft]:
    """Yield a PCIDevice for each listed function. ``owners`` are the GPUs by their virtual functions."""
    others = other_functions(view)
    for function in _listed(view, objects):
        yield _draft(view, objects, function, owners.get(function.address), function.address in others)


def _listed(view: NodeView, objects: Objects) -> Iterator[PciFunction]:
    """Yield the functions that have a PCIDevice: all but bridges, and what the host's own networks need.

    A claimed function always has one: its PCIDevice owns the claim.
    """
    for function in view.functions:
        claimed = passes_through(objects.claims.get(object_name(view.node, function.address)))
        if function.class_id != _BRIDGE and (is_listed(function) or claimed):
            yield function


def objects_to_delete(view: NodeView, objects: Objects) -> Iterator[PCIDevice]:
    """Yield this node's objects whose function is gone.

    Objects that were never ours stay, for example network cards that Harvester listed, unless the agent serves all
    devices. ``view.functions`` contains all functions that it serves.
    """
    present = {object_name(view.node, f.address) for f in _listed(view, objects)}
    for name, found in sorted(objects.functions.items()):
        on_node = view.node in (found.status.node_name, found.metadata.labels.get(NODE_LABEL))
        served = view.all_devices or found.status.vendor_id == NVIDIA
        foreign = not served and (not found.status.conditions or name in objects.claims)
        if on_node and name not in present and not foreign and not passes_through(objects.claims.get(name)):
            yield found


def missing_drafts(view: NodeView, objects: Objects) -> Iterator[Draft]:
    """Yield the drafts of claimed functions that are missing now.

    Their PCIDevices own the claims: deleting them would delete the claims with the requests.
    """
    present = {f.address for f in view.functions}
    for name, found in sorted(objects.functions.items()):
        served = view.all_devices or found.status.vendor_id == NVIDIA
        ours = served and found.status.node_name == view.node
        if not ours or found.status.address in present or not passes_through(objects.claims.get(name)):
            continue
        text = f"{found.status.address} is not on the PCI bus: its claim is kept until the device is back"
        why = ObjectVerdict("Missing", text, f"kubectl delete pcideviceclaim {name} (if it was removed for good)")
        status = msgspec.structs.replace(
            found.status,
            conditions=(condition(found.status.conditions, "Ready", "False", why, view.now),),
            observed_generation=found.metadata.generation,
            kernel_driver_in_use="",
        )
        yield Draft(PCIDevice, name, found.spec, status)


def vgpu_resource_for(outcome: GpuOutcome | None, address: str) -> str | None:
    """Return the vGPU resource of a virtual function with vendor-specific VFIO; "" without one, None if it is
    unknown.
    """
    if outcome is None:
        return ""
    physical_gpu = outcome.physical_gpu
    if physical_gpu.gpu is None or address not in physical_gpu.observed_functions:
        found = physical_gpu.vgpus.get(address)
        return None if found is not None and found.spec.enabled else ""
    if not physical_gpu.uses_vendor_vfio:
        return ""
    found, vgpu = physical_gpu.vgpus.get(address), physical_gpu.live_vgpus.get(address)
    if vgpu is not None:
        return vgpu_resource(vgpu.type) if is_owned(physical_gpu, found, vgpu) else ""
    if found is None or not found.spec.enabled or address in outcome.refused_functions:
        return ""
    return vgpu_resource(found.spec.type_name)


def _draft(
    view: NodeView, objects: Objects, function: PciFunction, outcome: GpuOutcome | None, is_other: bool
) -> Draft:
    name = object_name(view.node, function.address)
    found = objects.functions.get(name)
    parents = {PARENT_LABEL: outcome.physical_gpu.name} if outcome is not None else _parent_network(view, function)
    wanted_labels = labels({NODE_LABEL: view.node} | parents)
    annotations: dict[str, str | None] = {}
    if function.driver and (found is None or DRIVER_ANNOTATION not in found.metadata.annotations):
        annotations[DRIVER_ANNOTATION] = function.driver
    previous = found.metadata.annotations.get(RESOURCE_ANNOTATION) if found is not None else None
    if is_other:
        resource: str | None = _other_resource(name, objects, function, previous or "")
    else:
        resource = vgpu_resource_for(outcome, function.address)
    if resource is None:
        resource = previous or ""
    else:
        resource = resource or _own_resource(name, objects, function)
        if (resource or None) != previous:
            annotations[RESOURCE_ANNOTATION] = resource or None
    return Draft(
        kind=PCIDevice,
        name=name,
        spec=PCIDeviceSpec(),
        status=_status(view, function, found, resource or _resource(name, objects, function, found)),
        labels=wanted_labels,
        annotations=annotations,
        why=f"{function.address} is on the bus",
    )


def _parent_network(view: NodeView, function: PciFunction) -> dict[str, str]:
    """Return the label of a network card's virtual function. It names the SRIOVNetworkDevice, whose name has that of
    the card's interface.
    """
    parents = {f.address: f for f in view.functions} if function.physfn and view.all_devices else {}
    parent = parents.get(function.physfn)
    if parent is None or not parent.interfaces:
        return {}
    return {PARENT_NETWORK_LABEL: f"{view.node}-{parent.interfaces[0]}".lower()}


def _other_resource(name: str, objects: Objects, function: PciFunction, previous: str) -> str:
    """Return the resource that overrides a function's own: its object's name without pooling, or what a user or
    pcidevices wrote there; "" for none.
    """
    own = _own_resource(name, objects, function)
    return own or ("" if previous == _unpooled_resource(name, function) else previous)


def _own_resource(name: str, objects: Objects, function: PciFunction) -> str:
    """Return the resource of a function whose claim does not share one with other functions; "" for others.

    Harvester 1.9 records it at the PCIDevice.
    """
    claim = objects.claims.get(name)
    pooled = claim is None or claim.spec.disable_resource_pooling is not True
    return "" if pooled else _unpooled_resource(name, function)


def _unpooled_resource(name: str, function: PciFunction) -> str:
    return f"{vendor_domain(function.vendor)}/{name}"


def _resource(name: str, objects: Objects, function: PciFunction, found: PCIDevice | None) -> str:
    """Return the resource of a whole function. A name that VMs request stays, whatever our pci.ids calls the model."""
    if own := _own_resource(name, objects, function):
        return own
    if (
        found is not None
        and passes_through(objects.claims.get(name))
        and _is_same_model(found, function)
        and found.status.resource_name not in ("", _unpooled_resource(name, function))
    ):
        return found.status.resource_name
    return pci_resource(function.vendor, function.product, function.device_id)


def _is_same_model(found: PCIDevice, function: PciFunction) -> bool:
    """Report whether the function still has the same vendor and device id."""
    return (found.status.vendor_id, found.status.device_id) == (function.vendor_id, function.device_id)


def _status(view: NodeView, function: PciFunction, found: PCIDevice | None, resource: str) -> PCIDeviceStatus:
    why = ObjectVerdict("Present", f"driver {function.driver}" if function.driver else "no driver is bound to it")
    previous = found.status.conditions if found is not None else ()
    return PCIDeviceStatus(
        conditions=(condition(previous, "Ready", "True", why, view.now),),
        observed_generation=found.metadata.generation if found is not None else 1,
        address=function.address,
        vendor_id=function.vendor_id,
        device_id=function.device_id,
        class_id=function.class_id,
        iommu_group="" if function.iommu_group is None else str(function.iommu_group),
        node_name=view.node,
        resource_name=resource,
        description=_description(function),
        kernel_driver_in_use=function.driver,
    )


def _description(function: PciFunction) -> str:
    """Return the names of a function, as Harvester shows them; ids stand for what pci.ids does not know."""
    subclass = function.subclass or f"Class {function.class_id}"
    vendor = function.vendor or f"Vendor {function.vendor_id}"
    return f"{subclass}: {vendor} {function.product or f'Device {function.device_id}'}"
