"""Rules for PCIDeviceClaims of the functions that the agents serve. A claim of another one only gets a warning."""

from __future__ import annotations

from collections.abc import Iterator

from aliquot.errors import Message
from aliquot.kubernetes.kinds import harvester_names as names
from aliquot.kubernetes.kinds.harvester import PCIDeviceClaim, is_served
from aliquot.kubernetes.kinds.vgpu_pools import requesting_pool
from aliquot.kubernetes.virtual_machines.harvester.admission.device_users import describe_holder
from aliquot.kubernetes.virtual_machines.harvester.admission.rules import disable_command, moved_errors, name_errors
from aliquot.kubernetes.virtual_machines.harvester.admission.snapshot import AdmissionSnapshot, ObjectEdit
from aliquot.kubernetes.virtual_machines.harvester.foreign_nodes import foreign_nodes
from aliquot.kubernetes.virtual_machines.harvester.reasons import advice


def create(edit: ObjectEdit[PCIDeviceClaim], new: PCIDeviceClaim, snapshot: AdmissionSnapshot) -> Iterator[Message]:
    if not _is_served(edit.name, new, snapshot):
        return
    yield from name_errors(edit.name, new.spec.node_name, new.spec.address)
    function = snapshot.functions.get(edit.name)
    if function is not None and not function.status.iommu_group:
        yield Message(
            f"{edit.name} has no IOMMU group: enable the IOMMU in the firmware and on the kernel's command line"
        )
    for usb in sorted(snapshot.usb_claims.values(), key=lambda each: each.name):
        if (usb.status.node_name, usb.status.pci_address) == (new.spec.node_name, new.spec.address):
            yield Message(f"USB devices are using this controller ({usb.name}): delete USBDeviceClaim {usb.name} first")
    yield from _sharing_conflicts(edit.name, snapshot)


def update(
    edit: ObjectEdit[PCIDeviceClaim], old: PCIDeviceClaim, new: PCIDeviceClaim, snapshot: AdmissionSnapshot
) -> Iterator[Message]:
    if _is_served(edit.name, old, snapshot) or _is_served(edit.name, new, snapshot):
        yield from moved_errors((old.spec.node_name, old.spec.address), (new.spec.node_name, new.spec.address))


def delete(edit: ObjectEdit[PCIDeviceClaim], old: PCIDeviceClaim, snapshot: AdmissionSnapshot) -> Iterator[Message]:
    if old.spec.node_name not in snapshot.nodes or not _is_served(edit.name, old, snapshot):
        return
    if holder := describe_holder(snapshot, edit.name):
        yield holder
    owner = next((o.name for o in old.metadata.owner_references if o.kind == "VGPUDevice"), "")
    if owner and owner in snapshot.vgpus:
        yield Message(f"{edit.name} is owned by VGPUDevice {owner}: disable the VGPUDevice instead")


def warnings(edit: ObjectEdit[PCIDeviceClaim], snapshot: AdmissionSnapshot) -> Iterator[Message]:
    """Warn about a new claim that no agent serves, unless pcidevices runs on the node: then the claim belongs to it."""
    function = snapshot.functions.get(edit.name)
    if edit.old is not None or edit.new is None or function is None or is_served(function):
        return
    node = edit.new.spec.node_name
    if node in snapshot.nodes and node not in foreign_nodes(snapshot.nodes.values()):
        which = f"{function.status.vendor_id}:{function.status.device_id}"
        why = (
            f"{edit.name} ({which}) is not an NVIDIA device: on node {node} Aliquot serves no other device without "
            "--all-devices"
        )
        yield advice(why, f"kubectl delete pcideviceclaim {edit.name}")


def _is_served(name: str, claim: PCIDeviceClaim, snapshot: AdmissionSnapshot) -> bool:
    """Report whether a claim is about a function that the agents serve, by its own name or by that of its function."""
    either = (name, names.object_name(claim.spec.node_name, claim.spec.address))
    known = (snapshot.functions.get(each) for each in either)
    listed = any(each in snapshot.gpus or each in snapshot.vgpus for each in either)
    return listed or any(each is not None and is_served(each) for each in known)


def _sharing_conflicts(name: str, snapshot: AdmissionSnapshot) -> Iterator[Message]:
    """Yield conflicts: a GPU is either shared or passed through, a virtual function carries a vGPU or is passed
    through.
    """
    gpu, vgpu = snapshot.gpus.get(name), snapshot.vgpus.get(name)
    if pool := requesting_pool((*snapshot.vgpus_of(name), *([vgpu] if vgpu is not None else []))):
        why = f"VGPUPool {pool} requests vGPUs on {name}: change or delete it first"
        yield advice(why, f"kubectl edit vgpupool {pool}")
        return
    labelled = any(f.metadata.labels.get(names.PARENT_LABEL) == name for f in snapshot.functions.values())
    if labelled or (gpu is not None and gpu.spec.enabled) or snapshot.enabled_vgpus(name):
        text = f"vGPUs exist on {name}: disable SRIOVGPUDevice {name} first"
        if gpu is not None and not gpu.spec.enabled and not snapshot.enabled_vgpus(name):
            text = f"{text}; disabling is still in progress"
            yield advice(text, f"kubectl wait sriovgpudevice/{name} --for condition=Ready")
        else:
            yield advice(text, disable_command("sriovgpudevice", name))
    if vgpu is not None and vgpu.spec.enabled:
        why = f"{name} carries a vGPU ({vgpu.spec.type_name}): disable VGPUDevice {name} first"
        yield advice(why, disable_command("vgpudevice", name))
