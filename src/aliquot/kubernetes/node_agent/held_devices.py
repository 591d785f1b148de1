"""Devices that a plan destroys: they must not be held by pods of VMs, nor be allocated meanwhile."""

from __future__ import annotations

from aliquot.core.model.actions import (
    Destroy,
    DestroyCompute,
    DestroyVgpu,
    Reset,
    SetFunctions,
    SetMode,
    SetPassthrough,
)
from aliquot.core.model.inventory import Gpu, Inventory
from aliquot.core.model.plan import Plan


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
    functions = {f.pci for f in gpu.virtual.functions} if gpu.virtual is not None else set()
    return {gpu.uuid, *inside, *functions, *(each for v in gpu.vgpus for each in (v.uuid, v.function))}
