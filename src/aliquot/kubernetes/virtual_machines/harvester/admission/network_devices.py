"""Rules for SRIOVNetworkDevices."""

from __future__ import annotations

from collections.abc import Iterator

from aliquot.errors import Message
from aliquot.kubernetes.kinds.harvester_peripherals import SRIOVNetworkDevice
from aliquot.kubernetes.virtual_machines.harvester.admission.rules import moved_errors
from aliquot.kubernetes.virtual_machines.harvester.admission.snapshot import AdmissionSnapshot, ObjectEdit, shorten_list
from aliquot.kubernetes.virtual_machines.harvester.reasons import advice


def create(
    edit: ObjectEdit[SRIOVNetworkDevice], new: SRIOVNetworkDevice, snapshot: AdmissionSnapshot
) -> Iterator[Message]:
    """Allow each new object: only its node knows the port."""
    yield from ()


def update(
    edit: ObjectEdit[SRIOVNetworkDevice], old: SRIOVNetworkDevice, new: SRIOVNetworkDevice, snapshot: AdmissionSnapshot
) -> Iterator[Message]:
    """Check a change. The kernel changes the number of functions only by removing all of them.

    The number that exists is always admitted: it takes a request back that the port cannot meet.
    """
    yield from moved_errors((old.spec.node_name, old.spec.address), (new.spec.node_name, new.spec.address))
    if new.spec.num_vfs not in (old.spec.num_vfs, len(old.status.vf_pci_devices)):
        yield from _claimed_errors("change numVFs of", edit.name, old, snapshot)


def delete(
    edit: ObjectEdit[SRIOVNetworkDevice], old: SRIOVNetworkDevice, snapshot: AdmissionSnapshot
) -> Iterator[Message]:
    if old.spec.node_name in snapshot.nodes:
        yield from _claimed_errors("delete", edit.name, old, snapshot)


def _claimed_errors(verb: str, name: str, device: SRIOVNetworkDevice, snapshot: AdmissionSnapshot) -> Iterator[Message]:
    claimed = tuple(each for each in device.status.vf_pci_devices if each in snapshot.claims)
    if claimed:
        why = f"cannot {verb} {name} while its virtual functions are claimed ({shorten_list(claimed)})"
        yield advice(why, f"kubectl delete pcideviceclaim {' '.join(claimed[:4])}")
