"""Observations of nodes with vGPUs of both vGPU frameworks, and hand-made Harvester objects for them."""

from __future__ import annotations

import msgspec

from aliquot.core.model.inventory import Gpu
from aliquot.core.model.pci import PciFunction
from aliquot.kubernetes.client.object_base import ObjectMeta
from aliquot.kubernetes.kinds import harvester_names as names
from aliquot.kubernetes.kinds.harvester import (
    PCIDevice,
    PCIDeviceClaim,
    PCIDeviceClaimSpec,
    PCIDeviceClaimStatus,
    PCIDeviceStatus,
    VGPUDevice,
    VGPUDeviceSpec,
    VGPUDeviceStatus,
)
from aliquot.kubernetes.virtual_machines.harvester.node_view import NodeView, Objects
from support.vgpufactory import address, functions, gpu, having, kind, node

NODE = "harvester-kgd9c"
replace = msgspec.structs.replace


def make_gpu(product: str, *made: tuple[str, int], pci: str = "0000:08:00.0") -> Gpu:
    """Build a GPU in SR-IOV with vGPUs: type (``4A``) and number of the function."""
    return having(gpu(product, pci=pci), *((kind(product, short), number) for short, number in made))


def view(*gpus: Gpu, driver: bool = True, numa: int | None = 1) -> NodeView:
    """Build an observation of a node with these GPUs."""
    seen = []
    for each in gpus:
        driver_word = each.virtual.driver if each.virtual is not None else ""
        seen.append(
            PciFunction(each.pci, "10de", "25b6", "0302", iommu_group=38, driver=driver_word, numa=numa, gpu=True)
        )
        seen += [
            PciFunction(f.pci, "10de", "25b6", "0302", iommu_group=f.iommu_group, driver="nvidia", physfn=each.pci)
            for f in (each.virtual.functions if each.virtual is not None else ())
        ]
    inventory = node(*gpus) if driver else None
    return NodeView(node=NODE, boot="b", now=0.0, functions=tuple(seen), inventory=inventory)


def vgpus(*gpus: Gpu) -> dict[str, VGPUDevice]:
    """Build the objects of every function of these GPUs, as they are when all requests are met."""
    found = {}
    for each in gpus:
        vendor = each.virtual is not None and each.virtual.framework == "vendor-vfio"
        made = {v.function: v for v in each.vgpus}
        for function in functions(len(each.virtual.functions) if each.virtual else 0, each.pci):
            spec = VGPUDeviceSpec(address=function.pci, node_name=NODE, parent=each.pci)
            status = VGPUDeviceStatus()
            if function.pci in made:
                vgpu = made[function.pci]
                spec = replace(spec, enabled=True, type_name=vgpu.type)
                uuid = str(vgpu.type_id) if vendor else vgpu.uuid
                status = VGPUDeviceStatus(configured=vgpu.type, uuid=uuid, state=names.CONFIGURED)
            name = names.object_name(NODE, function.pci)
            found[name] = VGPUDevice(metadata=ObjectMeta(name=name, uid=name), spec=spec, status=status)
    return found


def passed(pci: str, resource: str, *, bound: bool = True) -> Objects:
    """Build the objects of a function that a user claimed."""
    name = names.object_name(NODE, pci)
    meta = ObjectMeta(name=name, uid=name)
    claim = PCIDeviceClaim(
        metadata=meta,
        spec=PCIDeviceClaimSpec(address=pci, node_name=NODE, user_name="admin"),
        status=PCIDeviceClaimStatus(kernel_driver_to_unbind="nvidia", passthrough_enabled=bound),
    )
    device = PCIDevice(metadata=meta, status=PCIDeviceStatus(address=pci, resource_name=resource, node_name=NODE))
    return Objects(functions={name: device}, claims={name: claim})


__all__ = ["NODE", "address", "make_gpu", "passed", "replace", "vgpus", "view"]
