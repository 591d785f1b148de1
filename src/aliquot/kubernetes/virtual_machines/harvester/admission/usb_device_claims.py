"""Rules for USBDeviceClaims."""

from __future__ import annotations

from collections.abc import Iterator

from aliquot.errors import Message
from aliquot.kubernetes.kinds.harvester import passes_through
from aliquot.kubernetes.kinds.harvester_peripherals import USBDeviceClaim
from aliquot.kubernetes.virtual_machines.harvester.admission.device_users import describe_holder
from aliquot.kubernetes.virtual_machines.harvester.admission.snapshot import AdmissionSnapshot, ObjectEdit
from aliquot.kubernetes.virtual_machines.harvester.reasons import advice


def create(edit: ObjectEdit[USBDeviceClaim], new: USBDeviceClaim, snapshot: AdmissionSnapshot) -> Iterator[Message]:
    """Check a new claim: a USB controller that is passed through as a whole takes its devices along."""
    device = snapshot.usb.get(edit.name)
    if device is None or not device.status.pci_address:
        return
    place = device.status.node_name, device.status.pci_address
    for claim in sorted(snapshot.claims.values(), key=lambda each: each.name):
        if (claim.spec.node_name, claim.spec.address) == place and passes_through(claim):
            why = f"its USB controller {device.status.pci_address} is claimed as a whole: delete that claim first"
            yield advice(why, f"kubectl delete pcideviceclaim {claim.name}")


def update(
    edit: ObjectEdit[USBDeviceClaim], old: USBDeviceClaim, new: USBDeviceClaim, snapshot: AdmissionSnapshot
) -> Iterator[Message]:
    if old.spec.user_name != new.spec.user_name:
        yield Message(f"userName of {edit.name} cannot be changed: delete the claim and create another one")


def delete(edit: ObjectEdit[USBDeviceClaim], old: USBDeviceClaim, snapshot: AdmissionSnapshot) -> Iterator[Message]:
    device = snapshot.usb.get(edit.name)
    node = old.status.node_name or (device.status.node_name if device is not None else "")
    if node in snapshot.nodes and (holder := describe_holder(snapshot, edit.name)):
        yield holder


def warnings(edit: ObjectEdit[USBDeviceClaim], snapshot: AdmissionSnapshot) -> Iterator[Message]:
    """Warn about a new claim without a device. It is allowed, because the device may come, as after a restore."""
    if edit.old is None and edit.name not in snapshot.usb:
        why = f"USBDevice {edit.name} does not exist: this claim has no effect until it does"
        yield advice(why, "kubectl get usbdevices")
