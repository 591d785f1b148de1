"""VGPUDevices: the virtual functions, and the vGPU that each carries."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Mapping

import msgspec

from aliquot.core.model.inventory import Vgpu
from aliquot.core.planner.vgpu.creatable_types import types
from aliquot.core.planner.vgpu.function_assignment import usable
from aliquot.kubernetes.kinds.harvester import VGPUDevice, VGPUDeviceSpec, VGPUDeviceStatus
from aliquot.kubernetes.kinds.harvester_names import CONFIGURED, NODE_LABEL, PARENT_LABEL, object_name
from aliquot.kubernetes.virtual_machines.harvester.conditions import FALSE, PENDING, READY, TRUE, UNKNOWN, condition
from aliquot.kubernetes.virtual_machines.harvester.gpu_decision import Outcome
from aliquot.kubernetes.virtual_machines.harvester.node_view import Objects, View
from aliquot.kubernetes.virtual_machines.harvester.object_draft import Draft, labels
from aliquot.kubernetes.virtual_machines.harvester.physical_gpus import VFIO, Card
from aliquot.kubernetes.virtual_machines.harvester.reasons import Verdict, advice
from aliquot.kubernetes.virtual_machines.harvester.vgpu_assignment import VENDOR, identity, nameable, tracked

replace = msgspec.structs.replace


def drafts(view: View, of: Outcome) -> Iterator[Draft]:
    """One object for each virtual function of a GPU, and for those that are off while the GPU is to have them. A new
    one waits until the driver tells what its function carries: what lives is adopted.
    """
    card, free = of.card, _free(of.card)
    offered = _offered(card) if free else {}
    for address in card.addresses:
        found = card.vgpus.get(address)
        unseen = found is None and address not in card.known
        if unseen or (address not in card.function.virtual and not card.enabled):
            continue
        state, why = _ready(of, address)
        status = _status(card, address, offered if address in free else {})
        yield Draft(
            kind=VGPUDevice,
            name=object_name(view.node, address),
            spec=_spec(view, card, address),
            status=_judged(view, found, status, state, why),
            labels=labels({PARENT_LABEL: card.name, NODE_LABEL: view.node}),
            why=f"{address} is a virtual function of {card.pci}",
        )


def gone(view: View, objects: Objects, coming: Collection[str]) -> Iterator[VGPUDevice]:
    """Objects whose virtual function is not there and is not to come back: after a reboot it would. ``coming`` are the
    SRIOVGPUDevices that are only being made.
    """
    present = {object_name(view.node, address) for f in view.functions for address in f.virtual}
    for name, found in sorted(objects.vgpus.items()):
        parent = objects.gpus.get(owner := object_name(view.node, found.spec.parent))
        kept = owner in coming or (parent is not None and parent.spec.enabled)
        if found.spec.node_name == view.node and name not in present and not kept:
            yield found


def waiting(view: View, objects: Objects) -> Iterator[Draft]:
    """Objects that wait for a GPU which is not there now."""
    there = {f.address for f in view.functions if f.gpu}
    for name, found in sorted(objects.vgpus.items()):
        parent = objects.gpus.get(object_name(view.node, found.spec.parent))
        kept = parent is not None and parent.spec.enabled
        if found.spec.node_name == view.node and kept and found.spec.parent not in there:
            why = Verdict("GpuMissing", f"there is no GPU at {found.spec.parent}: its wish is kept until it is back")
            status = _judged(view, found, VGPUDeviceStatus(uuid=_lasting(found)), FALSE, why)
            yield Draft(VGPUDevice, name, found.spec, status, labels({NODE_LABEL: view.node}))


def _judged(
    view: View, found: VGPUDevice | None, status: VGPUDeviceStatus, state: str, why: Verdict
) -> VGPUDeviceStatus:
    former = found.status.conditions if found is not None else ()
    generation = found.metadata.generation if found is not None else 1
    ready = condition(former, READY, state, why, view.now)
    return replace(status, conditions=(ready,), observed_generation=generation)


def _spec(view: View, card: Card, address: str) -> VGPUDeviceSpec:
    """The wish of a new object: what is."""
    vgpu = card.live.get(address)
    adopted = vgpu is not None and nameable(card, vgpu)
    name = vgpu.type if vgpu is not None and adopted else ""
    return VGPUDeviceSpec(address=address, enabled=adopted, node_name=view.node, parent=card.pci, type_name=name)


def _free(card: Card) -> frozenset[str]:
    """The virtual functions that could carry a vGPU now."""
    gpu = card.gpu
    if gpu is None or gpu.virtual is None or not gpu.virtual.functions:
        return frozenset()
    away = frozenset(f.pci for f in gpu.virtual.functions if f.driver == VFIO)
    return frozenset(pci for _, pci in usable(gpu, away) if pci not in card.live)


def _offered(card: Card) -> Mapping[str, str]:
    """The types that a free function can take now, each with what the original writes beside it."""
    assert card.inventory is not None
    assert card.gpu is not None
    prefix = "" if card.world == VENDOR else "nvidia-"
    return {each.name: f"{prefix}{each.id}" for each in types(card.inventory, card.gpu) if each.creatable}


def _status(card: Card, address: str, offered: Mapping[str, str]) -> VGPUDeviceStatus:
    """What the function carries. A vGPU that is nobody's is not told as configured: whoever disabled the object would
    destroy it.
    """
    found, vgpu = card.vgpus.get(address), card.live.get(address)
    if vgpu is not None:
        if not tracked(card, found, vgpu):
            return VGPUDeviceStatus()
        return VGPUDeviceStatus(configured=vgpu.type, uuid=identity(card, vgpu), state=CONFIGURED)
    if found is not None and address in card.function.virtual and address not in card.known:
        return found.status
    return VGPUDeviceStatus(available_types=dict(offered), uuid=_lasting(found) if found is not None else "")


def _lasting(found: VGPUDevice) -> str:
    """What ``status.uuid`` said of a vGPU that a reboot took away and that is to come back: the UUID by which virtual
    machines know it, or the type's number.
    """
    known = found.status.uuid if found.spec.enabled else ""
    if known.isascii() and known.isdecimal():
        return known
    try:
        return str(uuid.UUID(known))
    except ValueError:
        return ""


def _ready(of: Outcome, address: str) -> tuple[str, Verdict]:
    card, refused, failure = of.card, of.decision.vgpus, of.failure
    found, vgpu = card.vgpus.get(address), card.live.get(address)
    if found is None:
        return _new(card, vgpu)
    if card.gpu is None and (found.spec.enabled or found.status.state):
        return UNKNOWN, Verdict(card.reason, card.trouble)
    if address in refused:
        return FALSE, refused[address]
    if not found.spec.enabled:
        if vgpu is None:
            return TRUE, Verdict("Disabled", "no vGPU, as wished")
        return FALSE, failure or Verdict(PENDING, f"{vgpu.type} is being destroyed")
    if vgpu is not None:
        return TRUE, Verdict("Configured", f"it carries {vgpu.type}")
    if address not in card.function.virtual:
        text = f"the virtual functions of {card.pci} are off, and are to come back"
        return FALSE, failure or Verdict("FunctionsOff", text)
    return FALSE, failure or Verdict(PENDING, f"{found.spec.type_name} is being made")


def _new(card: Card, vgpu: Vgpu | None) -> tuple[str, Verdict]:
    if vgpu is None:
        return TRUE, Verdict("Disabled", "no vGPU, as wished")
    if nameable(card, vgpu):
        return TRUE, Verdict("Configured", f"it carries {vgpu.type}")
    text = f"it carries a vGPU of {vgpu.type}, which no table names: it is left alone"
    return FALSE, Verdict("Untracked", advice(text, f"aliquot vgpu list {card.pci}"))
