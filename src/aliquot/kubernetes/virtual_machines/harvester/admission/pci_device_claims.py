"""Rules for PCIDeviceClaims."""

from __future__ import annotations

from collections.abc import Iterator

from aliquot.kubernetes.kinds import harvester_names as names
from aliquot.kubernetes.kinds.harvester import PCIDeviceClaim
from aliquot.kubernetes.virtual_machines.harvester.admission.device_users import user_of
from aliquot.kubernetes.virtual_machines.harvester.admission.rules import disabling, identity, unmoved
from aliquot.kubernetes.virtual_machines.harvester.admission.snapshot import Edit, World
from aliquot.kubernetes.virtual_machines.harvester.reasons import advice


def create(edit: Edit[PCIDeviceClaim], new: PCIDeviceClaim, world: World) -> Iterator[str]:
    yield from identity(edit.name, new.spec.node_name, new.spec.address)
    function = world.functions.get(edit.name)
    if function is None:
        yield advice(f"there is no PCIDevice {edit.name}", "kubectl get pcidevices")
        return
    if not function.status.iommu_group:
        yield f"{edit.name} has no IOMMU group: switch the IOMMU on in the firmware and on the kernel's command line"
    for usb in sorted(world.usb_claims.values(), key=lambda each: each.name):
        if (usb.status.node_name, usb.status.pci_address) == (new.spec.node_name, new.spec.address):
            yield f"USB devices are using this controller ({usb.name}): delete USBDeviceClaim {usb.name} first"
    yield from _shared(edit.name, world)


def update(edit: Edit[PCIDeviceClaim], old: PCIDeviceClaim, new: PCIDeviceClaim, world: World) -> Iterator[str]:
    yield from unmoved((old.spec.node_name, old.spec.address), (new.spec.node_name, new.spec.address))


def delete(edit: Edit[PCIDeviceClaim], old: PCIDeviceClaim, world: World) -> Iterator[str]:
    if old.spec.node_name not in world.nodes:
        return
    if used := user_of(world, edit.name):
        yield used
    owner = next((o.name for o in old.metadata.owner_references if o.kind == "VGPUDevice"), "")
    if owner and owner in world.vgpus:
        yield f"{edit.name} is owned by VGPUDevice {owner}: disable that one"


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
