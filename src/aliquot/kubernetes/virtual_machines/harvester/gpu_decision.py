"""What should become of one GPU, and what of its objects' wishes cannot be met, each with its reason.

A wish that is impossible is left out rather than handed on: one bad object must not hinder its siblings on the GPU.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from aliquot.core.model.desired import Desired, GpuWish, VgpuWish
from aliquot.core.model.vgpu_types import VgpuType
from aliquot.core.planner.plan import plan
from aliquot.kubernetes.kinds.harvester import passing
from aliquot.kubernetes.kinds.harvester_names import SKIP_MIG_ANNOTATION, UNTRACKED_ANNOTATION
from aliquot.kubernetes.virtual_machines.harvester.mig_layout import Cut, beside, cut, strangers
from aliquot.kubernetes.virtual_machines.harvester.node_view import Intent
from aliquot.kubernetes.virtual_machines.harvester.physical_gpus import Card
from aliquot.kubernetes.virtual_machines.harvester.reasons import Verdict, advice, listed, verdict
from aliquot.kubernetes.virtual_machines.harvester.vgpu_assignment import Carried, carried, kind_of

replace = msgspec.structs.replace


class Decision(msgspec.Struct, frozen=True):
    """``intent`` None: nobody wishes anything of the GPU. The verdicts say what the intent leaves out: for the
    SRIOVGPUDevice, its MigConfiguration, its claim, and its VGPUDevices by virtual function. ``mig`` is the MIG mode
    that is wanted, None for "as it is".
    """

    intent: Intent | None = None
    device: Verdict | None = None
    cut: Verdict | None = None
    claim: Verdict | None = None
    vgpus: Mapping[str, Verdict] = {}
    mig: bool | None = None


class Outcome(msgspec.Struct, frozen=True):
    """A GPU with what was decided about it, and why that could not be carried out (None where nothing is known)."""

    card: Card
    decision: Decision
    failure: Verdict | None = None

    @property
    def refused(self) -> frozenset[str]:
        """The virtual functions whose wish the decision leaves out."""
        return frozenset(self.decision.vgpus)


def decide(card: Card) -> Decision:
    """The decision for one GPU."""
    claim = card.claim if passing(card.claim) else None
    if claim is None:
        return _shared(card)
    if claim.metadata.deletion_timestamp is not None:
        return _whole(card, False) if card.handed else _shared(card)
    if card.enabled and not card.handed:
        step = f'kubectl patch sriovgpudevice {card.name} --type merge -p \'{{"spec":{{"enabled":false}}}}\''
        text = f"SRIOVGPUDevice {card.name} is enabled: a GPU is shared or handed out whole"
        return replace(_shared(card), claim=Verdict("SriovEnabled", advice(text, step)))
    if card.function.virtual:
        first = _shared(card)
        why = first.device or Verdict("Waiting", "its virtual functions are switched off first")
        return replace(first, claim=why)
    others = () if card.handed else strangers(card)
    if others:
        text = f"handing GPU {card.pci} out would end what was not made through objects: {listed(others)}"
        step = f"kubectl annotate pcideviceclaim {card.name} {UNTRACKED_ANNOTATION}=delete (to have it destroyed)"
        return Decision(Intent(card.pci), claim=Verdict("Untracked", advice(text, step)))
    found = _whole(card, True)
    if not card.enabled:
        return found
    text = f"PCIDeviceClaim {card.name} has handed the whole GPU out"
    return replace(found, device=Verdict("Claimed", advice(text, f"kubectl delete pcideviceclaim {card.name}")))


def _whole(card: Card, on: bool) -> Decision:
    """The GPU is handed out whole, or taken back."""
    if card.gpu is None and not card.untaken:
        return Decision(Intent(card.pci, None, card.reason, card.trouble))
    wish = GpuWish(card.pci, None, instances=None, source=f"PCIDeviceClaim {card.name}", passthrough=on)
    return Decision(Intent(card.pci, wish))


def _shared(card: Card) -> Decision:
    """The GPU has virtual functions, or gives them up."""
    if card.device is None or not (card.enabled or card.function.virtual):
        return Decision()
    if card.gpu is None:
        return Decision(Intent(card.pci, None, card.reason, card.trouble))
    vgpus = carried(card)
    if card.enabled:
        return _on(card, vgpus, True)
    refusal = _must_stay_on(card, vgpus)
    if refusal is not None:
        return replace(_on(card, vgpus, None), device=refusal)
    wish = GpuWish(card.pci, None, instances=(), source=_source(card), vgpus=(), functions=False)
    return Decision(Intent(card.pci, wish), vgpus=vgpus.verdicts)


def _source(card: Card) -> str:
    return f"SRIOVGPUDevice {card.name}"


def _must_stay_on(card: Card, vgpus: Carried) -> Verdict | None:
    """Why virtual functions cannot be switched off."""
    enabled = sorted(v.name for v in card.vgpus.values() if v.spec.enabled)
    if enabled:
        text = f"its virtual functions stay on while VGPUDevices are enabled: {listed(enabled)}"
        step = f'kubectl patch vgpudevice {enabled[0]} --type merge -p \'{{"spec":{{"enabled":false}}}}\''
        return Verdict("VgpuEnabled", advice(text, step))
    held = [f for f, why in vgpus.verdicts.items() if why.reason == "Held" and f in vgpus.keep]
    if held:
        return Verdict("Held", vgpus.verdicts[held[0]].message)
    if vgpus.keep:
        names = listed(f"{w.type} on {f}" for f, w in vgpus.keep.items())
        text = f"its virtual functions carry vGPUs that were not made through their objects: {names}"
        return Verdict("Untracked", advice(text, f"kubectl describe vgpudevices -l nodename={card.node}"))
    others = strangers(card)
    if others:
        text = f"switching its virtual functions off would end what was not made through objects: {listed(others)}"
        step = f"kubectl annotate sriovgpudevice {card.name} {UNTRACKED_ANNOTATION}=delete (to have it destroyed)"
        return Verdict("Untracked", advice(text, step))
    return None


def _on(card: Card, vgpus: Carried, functions: bool | None) -> Decision:
    mig, note = _mode(card, vgpus) if functions else (_now(card), None)
    family = card.family
    chosen = cut(card, family) if mig and family is not None else _uncut(card, mig)
    on, kept = True if functions else None, tuple(vgpus.keep.values())
    base = GpuWish(card.pci, mig, None, _source(card), kept, on, restoring=vgpus.restoring)
    full = replace(base, instances=chosen.instances, vgpus=vgpus.every)
    applies = (card.name,) if chosen.applies else ()
    if not _blocked(card, full) or _blocked(card, base):
        # Where nothing at all can be done, the whole wish's attempt says why.
        return Decision(Intent(card.pci, full, applies=applies), note, chosen.verdict, vgpus=vgpus.verdicts, mig=mig)
    why = chosen.verdict
    wish = replace(base, instances=chosen.instances)
    blocked = _blocked(card, wish) if chosen.instances is not None else None
    if blocked is not None:
        wish, why, applies = base, beside(card, blocked), ()
    wish, refused = _as_many_as_fit(card, wish, vgpus.make)
    verdicts = {**vgpus.verdicts, **refused}
    return Decision(Intent(card.pci, wish, applies=applies), note, why, vgpus=verdicts, mig=mig)


def _uncut(card: Card, mig: bool | None) -> Cut:
    """A GPU that is not to be cut, although an object still asks for it."""
    if mig is not False or card.mig is None or not card.mig.spec.enabled:
        return Cut()
    text = f"SRIOVGPUDevice {card.name} says that MIG is to be skipped: none of its GPU instances is made"
    return Cut(
        verdict=Verdict("Skipped", advice(text, f"kubectl annotate sriovgpudevice {card.name} {SKIP_MIG_ANNOTATION}-"))
    )


def _now(card: Card) -> bool | None:
    gpu = card.gpu
    return gpu.mig.enabled if gpu is not None and gpu.mig.capable else None


def _mode(card: Card, vgpus: Carried) -> tuple[bool | None, Verdict | None]:
    """The MIG mode that the GPU should have. It is always said where the GPU could be cut: left open, it would follow
    the first vGPU that somebody asks for.
    """
    gpu, now = card.gpu, _now(card)
    if gpu is None or now is None or card.family is None:
        return None, None
    if card.device is not None and card.device.metadata.annotations.get(SKIP_MIG_ANNOTATION) == "true":
        if not gpu.instances:
            return False, None
        text = f"MIG is to be skipped, but the GPU has {len(gpu.instances)} GPU instances, which are left alone"
        made = card.mig is not None and card.mig.spec.enabled
        off = f'kubectl patch migconfiguration {card.name} --type merge -p \'{{"spec":{{"enabled":false}}}}\''
        return now, Verdict("HasInstances", advice(text, off if made else "aliquot show"))
    if any(_sliced(card, wish) for wish in vgpus.keep.values()):
        return now, None
    asked = [_sliced(card, wish) for wish in vgpus.make.values()]
    if not now and card.mig is None and asked and all(asked):
        return False, None
    return True, None


def _sliced(card: Card, wish: VgpuWish) -> bool:
    """Whether a vGPU is time-sliced: it needs MIG mode off."""
    kind = kind_of(card.table, wish.type)
    return isinstance(kind, VgpuType) and not kind.mig_backed


def _blocked(card: Card, wish: GpuWish) -> Verdict | None:
    assert card.inventory is not None, "a wish is made of what was read"
    found = plan(card.inventory, Desired((wish,)))
    return verdict(found.blockers[0]) if found.blockers else None


def _as_many_as_fit(card: Card, wish: GpuWish, make: Mapping[str, VgpuWish]) -> tuple[GpuWish, dict[str, Verdict]]:
    """The wish with one vGPU after the other, in the order of the virtual functions, as long as they fit."""
    refused: dict[str, Verdict] = {}
    for address, each in make.items():
        more = replace(wish, vgpus=(*(wish.vgpus or ()), each))
        why = _blocked(card, more)
        if why is None:
            wish = more
        else:
            refused[address] = why
    return wish, refused
