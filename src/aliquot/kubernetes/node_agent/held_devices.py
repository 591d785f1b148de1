"""Devices that are held by pods of VMs: kubelet's allocation counts before the VM has started.

A launcher pod opens its vGPU seconds after kubelet allocated it. Until then the kernel does not show the holder, but
the vGPU must not be destroyed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from aliquot.core.model.actions import (
    Destroy,
    DestroyCompute,
    DestroyVgpu,
    Reset,
    SetFunctions,
    SetMode,
    SetPassthrough,
)
from aliquot.core.model.inventory import Gpu, Holder, Inventory, Vgpu
from aliquot.core.model.plan import Plan
from aliquot.kubernetes.node_agent.pod_holders import PodDeviceUse, held_by_pods, holder, resolve_uses

HoldersByDevice = Mapping[str, list[Holder]]


def with_pod_holders(inventory: Inventory, uses: Iterable[PodDeviceUse]) -> Inventory:
    """Return the inventory with the pods as holders of the vGPUs, virtual functions and whole GPUs that they got.

    Kubelet's device ids are an mdev's UUID or a PCI address.
    """
    uses = resolve_uses(uses, inventory)
    by_device: dict[str, list[Holder]] = {}
    for use in uses:
        for device in use.devices:
            by_device.setdefault(device, []).append(holder(use, inventory))
    inventory = held_by_pods(inventory, uses)  # containers beside VMs
    if not by_device:
        return inventory
    return msgspec.structs.replace(inventory, gpus=tuple(_gpu_with_holders(gpu, by_device) for gpu in inventory.gpus))


def _gpu_with_holders(gpu: Gpu, by_device: HoldersByDevice) -> Gpu:
    vgpus = tuple(_vgpu_with_holders(vgpu, by_device) for vgpu in gpu.vgpus)
    virtual = gpu.virtual
    if virtual is not None:
        functions = tuple(
            msgspec.structs.replace(f, holders=_merge_holders(f.holders, by_device.get(f.pci, ())))
            for f in virtual.functions
        )
        virtual = msgspec.structs.replace(virtual, functions=functions)
    holders = _merge_holders(gpu.holders, by_device.get(gpu.pci, ()))
    return msgspec.structs.replace(gpu, vgpus=vgpus, virtual=virtual, holders=holders)


def _vgpu_with_holders(vgpu: Vgpu, by_device: HoldersByDevice) -> Vgpu:
    found = (*by_device.get(vgpu.uuid, ()), *by_device.get(vgpu.function, ()))
    return msgspec.structs.replace(vgpu, holders=_merge_holders(vgpu.holders, found)) if found else vgpu


def _merge_holders(first: Iterable[Holder], second: Iterable[Holder]) -> tuple[Holder, ...]:
    return tuple(dict.fromkeys((*first, *second)))


def devices_to_destroy(plan: Plan, inventory: Inventory) -> frozenset[str]:
    """Return the ids of the devices that this plan destroys or takes away, including those of containers.

    These devices must not be allocated while the plan runs.
    """
    found: set[str] = set()
    for action in plan.actions:
        match action:
            case DestroyVgpu():
                found |= {action.uuid, action.function}
            case Destroy():
                mine = (i for i in inventory.gpu(action.gpu).instances if i.id == action.instance)
                found |= {c.uuid for i in mine for c in i.compute_instances}
            case DestroyCompute():
                instance = inventory.gpu(action.gpu).instance(action.instance)
                parts = instance.compute_instances if instance else ()
                found |= {c.uuid for c in parts if c.id == action.compute_instance}
            case SetPassthrough(on=False):
                found |= {action.function or action.gpu}
            case SetPassthrough() if action.function:
                continue  # binding a virtual function to vfio-pci takes no device from others
            case SetFunctions() | SetMode() | Reset() | SetPassthrough():
                found |= all_device_ids(inventory.gpu(action.gpu))
    return frozenset(found - {""})


def all_device_ids(gpu: Gpu) -> set[str]:
    """Return every id by which kubelet may know a device of a GPU, and the GPU's UUID."""
    inside = {c.uuid for i in gpu.instances for c in i.compute_instances}
    return {gpu.uuid, *inside, *(each for v in gpu.vgpus for each in (v.uuid, v.function))}
