"""Rules for PCIDeviceClaims of NVIDIA's functions. Who claims another one is only told that we do not serve it."""

from __future__ import annotations

from collections.abc import Iterator

from aliquot.kubernetes.kinds import harvester_names as names
from aliquot.kubernetes.kinds.harvester import NVIDIA, PCIDeviceClaim, served
from aliquot.kubernetes.virtual_machines.harvester.admission.device_users import user_of
from aliquot.kubernetes.virtual_machines.harvester.admission.rules import disabling, identity, unmoved
from aliquot.kubernetes.virtual_machines.harvester.admission.snapshot import Edit, World
from aliquot.kubernetes.virtual_machines.harvester.foreign_nodes import foreign_nodes
from aliquot.kubernetes.virtual_machines.harvester.reasons import advice


def create(edit: Edit[PCIDeviceClaim], new: PCIDeviceClaim, world: World) -> Iterator[str]:
    if not _judged(edit.name, new, world):
        return
    yield from identity(edit.name, new.spec.node_name, new.spec.address)
    function = world.functions.get(edit.name)
    if function is not None and not function.status.iommu_group:
        yield f"{edit.name} has no IOMMU group: switch the IOMMU on in the firmware and on the kernel's command line"
    for usb in sorted(world.usb_claims.values(), key=lambda each: each.name):
        if (usb.status.node_name, usb.status.pci_address) == (new.spec.node_name, new.spec.address):
            yield f"USB devices are using this controller ({usb.name}): delete USBDeviceClaim {usb.name} first"
    yield from _shared(edit.name, world)


def update(edit: Edit[PCIDeviceClaim], old: PCIDeviceClaim, new: PCIDeviceClaim, world: World) -> Iterator[str]:
    if _judged(edit.name, old, world) or _judged(edit.name, new, world):
        yield from unmoved((old.spec.node_name, old.spec.address), (new.spec.node_name, new.spec.address))


def delete(edit: Edit[PCIDeviceClaim], old: PCIDeviceClaim, world: World) -> Iterator[str]:
    if old.spec.node_name not in world.nodes or not _judged(edit.name, old, world):
        return
    if used := user_of(world, edit.name):
        yield used
    owner = next((o.name for o in old.metadata.owner_references if o.kind == "VGPUDevice"), "")
    if owner and owner in world.vgpus:
        yield f"{edit.name} is owned by VGPUDevice {owner}: disable that one"


def warnings(edit: Edit[PCIDeviceClaim], world: World) -> Iterator[str]:
    """A claim that nobody will serve says so while it is made. Where pcidevices works it is pcidevices' own."""
    function = world.functions.get(edit.name)
    if edit.old is not None or edit.new is None or function is None or served(function):
        return
    node = edit.new.spec.node_name
    if node in world.nodes and node not in foreign_nodes(world.nodes.values()):
        which = f"{function.status.vendor_id}:{function.status.device_id}"
        why = f"{edit.name} ({which}) is not an NVIDIA device: on node {node} aliquot serves no other device"
        yield advice(why, f"kubectl delete pcideviceclaim {edit.name}")


def _judged(name: str, claim: PCIDeviceClaim, world: World) -> bool:
    """Whether a claim is about a function of NVIDIA's, by its own name or by that of what it is about."""
    either = (name, names.object_name(claim.spec.node_name, claim.spec.address))
    known = (world.functions.get(each) for each in either)
    listed = any(each in world.gpus or each in world.vgpus for each in either)
    return listed or any(each is not None and each.status.vendor_id == NVIDIA for each in known)


def _shared(name: str, world: World) -> Iterator[str]:
    """A GPU is handed out whole or shared, and a virtual function carries a vGPU or is handed out."""
    gpu, vgpu = world.gpus.get(name), world.vgpus.get(name)
    labelled = any(f.metadata.labels.get(names.PARENT_LABEL) == name for f in world.functions.values())
    if labelled or (gpu is not None and gpu.spec.enabled) or world.enabled_children(name):
        text = f"vGPUs exist on {name}: disable SRIOVGPUDevice {name} first"
        if gpu is not None and not gpu.spec.enabled and not world.enabled_children(name):
            text = f"{text}, which is still going on"
            yield advice(text, f"kubectl wait sriovgpudevice/{name} --for condition=Ready")
        else:
            yield advice(text, disabling("sriovgpudevice", name))
    if vgpu is not None and vgpu.spec.enabled:
        why = f"{name} carries a vGPU ({vgpu.spec.type_name}): disable VGPUDevice {name} first"
        yield advice(why, disabling("vgpudevice", name))
