"""Rules for USBDevices, which only agents write."""

from __future__ import annotations

from collections.abc import Iterator

from aliquot.errors import Message
from aliquot.kubernetes.kinds.harvester_peripherals import USBDevice
from aliquot.kubernetes.virtual_machines.harvester.admission.snapshot import AdmissionSnapshot, ObjectEdit
from aliquot.kubernetes.virtual_machines.harvester.reasons import advice


def create(edit: ObjectEdit[USBDevice], new: USBDevice, snapshot: AdmissionSnapshot) -> Iterator[Message]:
    """Allow each new object: the node's agent corrects it."""
    yield from ()


def update(
    edit: ObjectEdit[USBDevice], old: USBDevice, new: USBDevice, snapshot: AdmissionSnapshot
) -> Iterator[Message]:
    """Allow each change: the node's agent corrects it."""
    yield from ()


def delete(edit: ObjectEdit[USBDevice], old: USBDevice, snapshot: AdmissionSnapshot) -> Iterator[Message]:
    if old.status.node_name in snapshot.nodes and old.status.enabled is True:
        why = f"{edit.name} is passed through to VMs: delete its claim first"
        yield advice(why, f"kubectl delete usbdeviceclaim {edit.name}")
