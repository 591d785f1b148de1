"""USBDevices, and the claims that pass them through to VMs.

A claimed device that is unplugged keeps its object and its claim, and VMs cannot get it meanwhile: it may come back, as
after a reboot. The objects of another device that is unplugged are deleted. A device that is plugged in again has
another number on its bus, and thereby another name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from aliquot.core.model.peripherals import UsbDevice
from aliquot.kubernetes.client.object_base import OwnerReference
from aliquot.kubernetes.kinds.harvester import passes_through
from aliquot.kubernetes.kinds.harvester_names import NODE_LABEL
from aliquot.kubernetes.kinds.harvester_peripherals import (
    ORPHANED,
    USB_FINALIZER,
    USBDevice,
    USBDeviceClaim,
    USBDeviceClaimStatus,
    USBDeviceStatus,
    usb_name,
    usb_resource,
)
from aliquot.kubernetes.virtual_machines.harvester.conditions import ConditionState, condition
from aliquot.kubernetes.virtual_machines.harvester.node_view import JSON, NodeView, ObjectChange, Objects
from aliquot.kubernetes.virtual_machines.harvester.object_draft import Draft, labels, plain
from aliquot.kubernetes.virtual_machines.harvester.reasons import HELD, ObjectVerdict

_LONGEST_RESOURCE = 63
"""The most characters of a resource's name after the domain, for kubelet."""


def present_devices(view: NodeView) -> dict[str, UsbDevice]:
    """Return the USB devices that are plugged in, by the names of their objects."""
    found = view.peripherals.usb if view.peripherals is not None else ()
    return {usb_name(view.node, each.vendor_id, each.product_id, each.path): each for each in found}


def served_claims(view: NodeView, objects: Objects) -> dict[str, USBDeviceClaim]:
    """Return the claims of this node's USB devices that are not refused and should stay, by name."""
    return {
        name: claim
        for name, claim in _own_claims(view, objects).items()
        if claim.metadata.deletion_timestamp is None and _refusal(view, objects, name) is None
    }


def drafts(view: NodeView, objects: Objects) -> Iterator[Draft]:
    """Yield the drafts of devices and of their claims."""
    served = served_claims(view, objects)
    present = present_devices(view)
    for name, device in present.items():
        why = ObjectVerdict("Present", f"it is device {device.number} of USB bus {device.bus}")
        status = USBDeviceStatus(
            vendor_id=device.vendor_id,
            product_id=device.product_id,
            node_name=view.node,
            resource_name=usb_resource(name),
            device_path=device.path,
            description=device.description,
            pci_address=device.controller,
            class_type=device.class_type,
            enabled=name in served,
        )
        yield _device_draft(view, objects, name, status, ("True", why))
    for name, found in _missing(view, objects).items():
        if name in served:
            yield _missing_draft(view, objects, name, found)
    for name, claim in _own_claims(view, objects).items():
        yield _claim_draft(view, objects, name, claim)


def objects_to_delete(view: NodeView, objects: Objects) -> Iterator[USBDevice]:
    """Yield the objects of unplugged devices that no claim holds."""
    for name, found in _missing(view, objects).items():
        if name not in objects.usb_claims:
            yield found


def claim_changes(view: NodeView, objects: Objects) -> Iterator[ObjectChange]:
    """Yield the changes of claims' finalizers, and of missing owners.

    The finalizer lets the agent withdraw the device before its claim is gone, and keeps the claim while a VM has the
    device: another claim could give it to a second VM. The owner lets the garbage collector
    delete the claim of a device whose node is gone.
    """
    for name, claim in sorted(_own_claims(view, objects).items()):
        meta, device = claim.metadata, objects.usb.get(name)
        leaving, held = meta.deletion_timestamp is not None, USB_FINALIZER in meta.finalizers
        if leaving and held and _allocation(view, name) is None:
            rest = [each for each in meta.finalizers if each != USB_FINALIZER]
            yield _change(claim, {"finalizers": rest}, "the device is withdrawn from VMs")
        if not leaving and not held:
            yield _change(claim, {"finalizers": [*meta.finalizers, USB_FINALIZER]}, "it must be withdrawn first")
        if not leaving and not meta.owner_references and device is not None and device.metadata.uid:
            owner = OwnerReference(USBDevice.TYPE.kind, name, device.metadata.uid, USBDevice.TYPE.api_version)
            yield _change(claim, {"ownerReferences": plain([owner])}, "its device owns it")


def _own_claims(view: NodeView, objects: Objects) -> dict[str, USBDeviceClaim]:
    """Return the claims of this node's devices, plugged in or not. A claim does not name its node until it is
    served.
    """
    if view.peripherals is None:
        return {}
    own = {*present_devices(view), *_own_objects(view, objects)}
    return {name: claim for name, claim in objects.usb_claims.items() if name in own}


def _own_objects(view: NodeView, objects: Objects) -> dict[str, USBDevice]:
    return {
        name: each
        for name, each in sorted(objects.usb.items())
        if view.node in (each.status.node_name, each.metadata.labels.get(NODE_LABEL))
    }


def _missing(view: NodeView, objects: Objects) -> Mapping[str, USBDevice]:
    """Return this node's objects whose device is not plugged in; none if the agent does not serve USB devices."""
    if view.peripherals is None:
        return {}
    present = present_devices(view)
    return {name: each for name, each in _own_objects(view, objects).items() if name not in present}


def _missing_draft(view: NodeView, objects: Objects, name: str, found: USBDevice) -> Draft:
    text = f"{found.status.device_path} is not plugged in: its claim is kept, and no VM gets it"
    why = ObjectVerdict("Missing", text, f"kubectl delete usbdeviceclaim {name} (if it stays away)")
    status = msgspec.structs.replace(
        found.status,
        resource_name=usb_resource(name),
        node_name=view.node,
        enabled=True,
        state=ORPHANED,
        message="The USB device is unplugged. Remove it from virtual machines and disable it.",
    )
    return _device_draft(view, objects, name, status, ("False", why))


def _device_draft(view: NodeView, objects: Objects, name: str, status: USBDeviceStatus, state: ConditionState) -> Draft:
    found = objects.usb.get(name)
    previous = found.status.conditions if found is not None else ()
    status = msgspec.structs.replace(
        status,
        conditions=(condition(previous, "Ready", *state, view.now),),
        observed_generation=(found.metadata.generation or 1) if found is not None else 1,
    )
    return Draft(USBDevice, name, None, status, labels=labels({NODE_LABEL: view.node}), why="it is plugged in")


def _claim_draft(view: NodeView, objects: Objects, name: str, claim: USBDeviceClaim) -> Draft:
    device, found = present_devices(view).get(name), objects.usb.get(name)
    leaving = claim.metadata.deletion_timestamp is not None
    refusal = _allocation(view, name) if leaving else _refusal(view, objects, name)
    if refusal is not None:
        state: ConditionState = "False", refusal
    elif device is None:
        text = f"{name} is not plugged in: the claim is kept until the device is back"
        step = f"kubectl delete usbdeviceclaim {name} (if it stays away)"
        state = "False", ObjectVerdict("Missing", text, step)
    else:
        state = "True", ObjectVerdict("PassedThrough", f"VMs can request {usb_resource(name)}")
    controller = device.controller if device is not None else found.status.pci_address if found is not None else ""
    status = USBDeviceClaimStatus(
        conditions=(condition(claim.status.conditions, "Ready", *state, view.now),),
        observed_generation=claim.metadata.generation or 1,
        node_name=view.node,
        pci_address=controller,
    )
    return Draft(USBDeviceClaim, name, claim.spec, status)


def _allocation(view: NodeView, name: str) -> ObjectVerdict | None:
    """Return why a device cannot be withdrawn yet: a pod has it, or kubelet does not answer. None if it can."""
    if view.kubelet_error:
        return ObjectVerdict("KubeletAway", view.kubelet_error, "systemctl status kubelet")
    if name not in view.allocated:
        return None
    text = f"kubelet allocated {name} to pod {view.allocated[name]}"
    return ObjectVerdict(HELD, text, "end that pod (for a VM: shut it down); Aliquot then continues")


def _refusal(view: NodeView, objects: Objects, name: str) -> ObjectVerdict | None:
    """Return why a device cannot be passed through; None if it can."""
    if len(name) > _LONGEST_RESOURCE:
        text = f"kubelet takes at most {_LONGEST_RESOURCE} characters for a resource, and {name} has {len(name)}"
        return ObjectVerdict("NotCapable", text, "give the node a shorter name")
    device, found = present_devices(view).get(name), objects.usb.get(name)
    if device is not None and device.user:
        text = f"the host itself uses it: {device.user}"
        return ObjectVerdict(HELD, text, "end that use, or claim another device; see lsusb -t on the node")
    controller = device.controller if device is not None else found.status.pci_address if found is not None else ""
    for claim in objects.claims.values():
        if controller and claim.spec.address == controller and claim.spec.node_name == view.node:
            if not passes_through(claim) or claim.metadata.deletion_timestamp is not None:
                continue
            text = f"its USB controller {controller} is claimed as a whole by PCIDeviceClaim {claim.name}"
            return ObjectVerdict("Claimed", text, f"kubectl delete pcideviceclaim {claim.name}")
    return None


def _change(claim: USBDeviceClaim, metadata: JSON, why: str) -> ObjectChange:
    meta = claim.metadata
    body = {"metadata": metadata}
    return ObjectChange("patch", claim.TYPE.kind, claim.name, body, meta.resource_version, meta.uid, why)
