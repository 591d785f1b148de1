"""Rules for VGPUDevices."""

from __future__ import annotations

from collections.abc import Iterator

from aliquot.kubernetes.kinds.harvester import VGPUDevice
from aliquot.kubernetes.kinds.harvester_names import PARENT_LABEL
from aliquot.kubernetes.virtual_machines.harvester.admission import vgpu_capacity as room
from aliquot.kubernetes.virtual_machines.harvester.admission.device_users import user_of
from aliquot.kubernetes.virtual_machines.harvester.admission.rules import disabling, identity, unmoved
from aliquot.kubernetes.virtual_machines.harvester.admission.snapshot import Edit, World, listed, parent_of
from aliquot.kubernetes.virtual_machines.harvester.reasons import advice


def create(edit: Edit[VGPUDevice], new: VGPUDevice, world: World) -> Iterator[str]:
    """A restored one comes without status: which types can be made is then for the agent to say."""
    yield from identity(edit.name, new.spec.node_name, new.spec.address)
    if new.spec.enabled and not new.spec.type_name:
        yield "vGPUTypeName cannot be empty when a vGPU is enabled"


def update(edit: Edit[VGPUDevice], old: VGPUDevice, new: VGPUDevice, world: World) -> Iterator[str]:
    yield from unmoved(
        (old.spec.node_name, f"{old.spec.address} of {old.spec.parent}"),
        (new.spec.node_name, f"{new.spec.address} of {new.spec.parent}"),
    )
    if old.spec.enabled and not new.spec.enabled:
        if used := user_of(world, edit.name):
            yield used
    elif old.spec.enabled and new.spec.type_name != old.spec.type_name:
        was = old.spec.type_name or old.status.configured
        why = f"{edit.name} is enabled as {was}: disable it before its type is changed"
        yield advice(why, disabling("vgpudevice", edit.name))
    elif new.spec.enabled and not old.spec.enabled:
        yield from _enabling(edit.name, old, new, world)


def delete(edit: Edit[VGPUDevice], old: VGPUDevice, world: World) -> Iterator[str]:
    if old.spec.node_name in world.nodes and (used := user_of(world, edit.name)):
        yield used


def _enabling(name: str, old: VGPUDevice, new: VGPUDevice, world: World) -> Iterator[str]:
    wanted, parent = new.spec.type_name, parent_of(new)
    gpu = world.gpus.get(parent)
    if not wanted:
        yield f"vGPUTypeName cannot be empty: {_choice(old, world)}"
        return
    if gpu is not None and not gpu.spec.enabled:
        step = f'kubectl patch sriovgpudevice {parent} --type merge -p \'{{"spec":{{"enabled":true}}}}\''
        yield advice(f"SRIOVGPUDevice {parent} is disabled: enable it first", step)
    if old.status.configured == wanted:
        return  # there already: made by hand, or enabled again before it was taken away
    if wanted not in old.status.available_types:
        beside = room.beside(world, new) if old.status.available_types else ""
        yield f"{wanted} is not a valid profile for {name} now: {_choice(old, world)}" + (beside and f"; {beside}")
        return
    if why := room.beside(world, new):
        yield why


def _choice(device: VGPUDevice, world: World) -> str:
    """What could be chosen, or why nothing can."""
    types = tuple(sorted(device.status.available_types))
    if types:
        return f"available are {listed(types, 20)}"
    ready = next((c for c in device.status.conditions if c.type == "Ready"), None)
    if ready is not None and ready.status != "True" and ready.message:
        return f"nothing is available ({ready.message})"
    parent = parent_of(device)
    mig = world.migs.get(parent)
    if mig is not None and not any(each.instances for each in mig.status.profile_status):
        why = f"MIG is on, and {parent} has no GPU instance: set requested in its MigConfiguration and enable that"
        return advice(f"nothing is available ({why})", f"kubectl edit migconfiguration {parent}")
    there = [v for v in world.children(parent) if v.name != device.name and v.spec.enabled]
    names = tuple(f"{v.spec.type_name} on {v.name}" for v in sorted(there, key=lambda v: v.name))
    why = f"{parent} is full: {listed(names)}" if names else "its driver does not answer"
    return advice(f"nothing is available ({why})", f"kubectl get vgpudevices -l {PARENT_LABEL}={parent}")
