"""Which vGPU each virtual function should carry, and which of those that exist may go."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

import msgspec

from aliquot.core.model.desired import VgpuWish
from aliquot.core.model.inventory import Vgpu
from aliquot.core.model.vgpu_types import VgpuTable, VgpuType
from aliquot.core.planner.rules import Refusal
from aliquot.core.planner.vgpu.rules import find
from aliquot.kubernetes.kinds.harvester import VGPUDevice
from aliquot.kubernetes.kinds.harvester_names import UNTRACKED_ANNOTATION
from aliquot.kubernetes.virtual_machines.harvester.physical_gpus import Card
from aliquot.kubernetes.virtual_machines.harvester.reasons import Verdict, advice, word

VENDOR = "vendor-vfio"


class Carried(msgspec.Struct, frozen=True):
    """By virtual function: the vGPUs that stay, those that should be made, and why an object is not as wished.
    ``restoring``: every one that should be made was there before, and went with a reboot.
    """

    keep: Mapping[str, VgpuWish]
    make: Mapping[str, VgpuWish]
    verdicts: Mapping[str, Verdict]
    restoring: bool = False

    @property
    def every(self) -> tuple[VgpuWish, ...]:
        return (*self.keep.values(), *self.make.values())


def identity(card: Card, vgpu: Vgpu) -> str:
    """What ``status.uuid`` says of a vGPU: the mdev's UUID; the type's number with vendor VFIO, as the original."""
    return str(vgpu.type_id) if card.world == VENDOR else vgpu.uuid


def ours(card: Card, found: VGPUDevice, vgpu: Vgpu) -> bool:
    """Whether the object knows this very vGPU as the one that was made for it. Without that it is somebody's."""
    known = found.status.uuid
    return known == identity(card, vgpu) if known else bool(found.status.state)


def tracked(card: Card, found: VGPUDevice | None, vgpu: Vgpu) -> bool:
    """Whether the object answers for a vGPU that its function carries: it asked for it, or had it made."""
    if found is None:
        return nameable(card, vgpu)
    return ours(card, found, vgpu) or (found.spec.enabled and same(card, found.spec.type_name, vgpu))


def nameable(card: Card, vgpu: Vgpu) -> bool:
    """Whether a wish could name its type: only then it can be adopted."""
    table = card.table
    return table is not None and vgpu.type_id in table.by_id


def same(card: Card, type_name: str, vgpu: Vgpu) -> bool:
    """Whether a vGPU is of the type of that name."""
    kind = kind_of(card.table, type_name)
    return type_name == vgpu.type or (isinstance(kind, VgpuType) and kind.id == vgpu.type_id)


def kind_of(table: VgpuTable | None, type_name: str) -> VgpuType | Refusal:
    """The type of a full (or short) name on this GPU."""
    return find(table, 0, type_name, table.name if table is not None else "this GPU")


def carried(card: Card) -> Carried:
    """The decision for each virtual function by itself; whether all of it fits is another question."""
    keep: dict[str, VgpuWish] = {}
    make: dict[str, VgpuWish] = {}
    verdicts: dict[str, Verdict] = {}
    for address in card.addresses:
        found, vgpu = card.vgpus.get(address), card.live.get(address)
        if vgpu is not None:
            stays, why = _existing(card, found, vgpu)
            if stays:
                keep[address] = _pinned(vgpu)
        else:
            stays, why = False, None
        if not stays and why is None and found is not None and found.spec.enabled:
            wish = _wished(card, found, address)
            if isinstance(wish, Verdict):
                why = wish
            else:
                make[address] = wish
        if why is not None:
            verdicts[address] = why
    return Carried(keep, make, verdicts, bool(make) and all(_was_there(card, wish) for wish in make.values()))


def _was_there(card: Card, wish: VgpuWish) -> bool:
    """Whether the vGPU went with a reboot: its object still says what it was."""
    return bool(wish.uuid) or card.vgpus[wish.function].status.uuid == str(wish.type_id)


def _pinned(vgpu: Vgpu) -> VgpuWish:
    return VgpuWish(vgpu.type_id, vgpu.type, vgpu.function, vgpu.uuid, vgpu.placement)


def _existing(card: Card, found: VGPUDevice | None, vgpu: Vgpu) -> tuple[bool, Verdict | None]:
    """Whether a vGPU that exists stays, and what is wrong about it."""
    if found is None:
        return True, None
    may_go = ours(card, found, vgpu) or found.metadata.annotations.get(UNTRACKED_ANNOTATION) == "delete"
    name = f"vgpudevice {found.name}"
    if found.spec.enabled:
        if same(card, found.spec.type_name, vgpu):
            return True, None
        if ours(card, found, vgpu):
            text = f"it carries {vgpu.type}, and another type was asked while it was enabled"
            return True, Verdict("TypeChanged", advice(text, f"{_patch(name, False)}, then enable it anew"))
    if not may_go:
        return True, _untracked(found, vgpu)
    if vgpu.held:
        who = ", ".join(map(str, vgpu.holders))
        return True, Verdict("Held", advice(f"{vgpu.type} is in use by {who}", "stop that virtual machine"))
    return False, None


def _untracked(found: VGPUDevice, vgpu: Vgpu) -> Verdict:
    text = f"{vgpu.type} on {vgpu.function} was not made through this object: it is left alone"
    step = (
        f"kubectl annotate vgpudevice {found.name} {UNTRACKED_ANNOTATION}=delete (or, to keep it, enable the object "
        f"with vGPUTypeName {vgpu.type!r})"
    )
    return Verdict("Untracked", advice(text, step))


def _patch(what: str, enabled: bool) -> str:
    word = "true" if enabled else "false"
    return f'kubectl patch {what} --type merge -p \'{{"spec":{{"enabled":{word}}}}}\''


def _wished(card: Card, found: VGPUDevice, address: str) -> VgpuWish | Verdict:
    step = f"kubectl get vgpudevice {found.name} -o jsonpath='{{.status.availableTypes}}'"
    if not found.spec.type_name:
        return Verdict("NoType", advice("it is enabled without a vGPU type", step))
    kind = kind_of(card.table, found.spec.type_name)
    if isinstance(kind, Refusal):
        return Verdict(word(kind.rule), advice(kind.message, step))
    return VgpuWish(kind.id or 0, kind.name, address, _uuid(card, found.status.uuid))


def _uuid(card: Card, text: str) -> str:
    """The UUID that the vGPU had before a reboot, which virtual machines may know it by."""
    try:
        former = str(uuid.UUID(text))
    except ValueError:
        return ""
    return former if all(v.uuid != former for v in card.live.values()) else ""
