"""A GPU as text and picture, for its card on the node page and the head of its own page."""

from __future__ import annotations

import msgspec

from aliquot.core.model.inventory import Gpu, Inventory
from aliquot.core.model.plan import Drift
from aliquot.core.model.vgpu_scheduler import DEFAULT, scheduler_of
from aliquot.core.planner.fragmentation import Fragmentation, ProfileCapacity, find_fragmentation
from aliquot.core.rendering import mig_picture
from aliquot.core.rendering import vgpu_picture as shares
from aliquot.dashboard import formatting as words
from aliquot.dashboard import gpu_bars as pictures
from aliquot.dashboard.gpu_bars import GpuBar
from aliquot.dashboard.view_models import ObservedNode

WANTED = "wanted"


class GpuView(msgspec.Struct, frozen=True):
    """A GPU as text and picture."""

    id: str
    name: str
    product: str
    pci: str
    uuid: str
    path: str
    bar: GpuBar
    facts: tuple[str, ...] = ()
    """The modes, shown next to the title."""
    line: str = ""
    """A summary of its content."""
    fragmentation: str = ""
    """A description of fragmented free memory, "" if there is none."""
    closable: tuple[ProfileCapacity, ...] = ()
    """Profiles that moving idle instances makes room for."""
    drift: tuple[str, ...] = ()
    lost: bool = False


def gpu_view(view: ObservedNode, inventory: Inventory, gpu: Gpu, found: Fragmentation | None = None) -> GpuView:
    """Build the view of one GPU of a node."""
    found = found or find_fragmentation(inventory, gpu)
    drift = tuple(d for d in view.drift if d.gpu == gpu.pci)
    bar = pictures.of_gpu(inventory, gpu, found, odd=_odd(gpu, drift))
    if found:
        bar = msgspec.structs.replace(bar, marks=_missing(inventory, gpu, drift))
    return GpuView(
        id=f"gpu-{gpu.pci.replace(':', '-').replace('.', '-')}",
        name=words.gpu_name(gpu),
        product=words.product(gpu),
        pci=gpu.pci,
        uuid=words.clean(gpu.uuid),
        path=words.path("nodes", view.name, "gpus", gpu.pci),
        bar=bar,
        facts=facts(gpu),
        line=line(inventory, gpu, found),
        fragmentation=fragmentation_text(inventory, gpu, found) if found else "",
        closable=offered(found) if found else (),
        drift=tuple(map(words.drift_sentence, drift)),
        lost=gpu.lost,
    )


def _odd(gpu: Gpu, drift: tuple[Drift, ...]) -> tuple[str, ...]:
    """Return the letters of instances that should not exist."""
    extra = {d.instance.id for d in drift if d.kind == "extra" and d.instance}
    ordered = sorted(gpu.instances, key=lambda i: i.place.start)
    return tuple(mig_picture.LETTERS[n] for n, i in enumerate(ordered) if i.id in extra)


def _missing(inventory: Inventory, gpu: Gpu, drift: tuple[Drift, ...]) -> tuple[pictures.BarBlock, ...]:
    """Build marks for missing instances, if their placement was requested."""
    family = inventory.family(gpu)
    marks: list[pictures.BarBlock] = []
    for each in drift:
        missing = each.instance if each.kind == "missing" else None
        if missing and missing.place and missing.profile in family.by_name:
            label = f"{missing.profile} should be here"
            marks += pictures.marks(family.memory_slices, [missing.place], WANTED, label)
    return tuple(marks)


def facts(gpu: Gpu) -> tuple[str, ...]:
    """Describe a GPU's modes briefly."""
    if gpu.lost:
        return ("fallen off the bus",)
    if gpu.passthrough:
        return ("passed through whole to VMs",)
    out = ["no MIG"]
    if gpu.mig.capable:
        pending = gpu.mig.pending != gpu.mig.current
        out = [f"MIG {gpu.mig.current}" + (f", {gpu.mig.pending} after the next reset" if pending else "")]
    virtual = gpu.virtual
    if virtual and virtual.total:
        out.append(words.number(len(virtual.functions), "virtual function"))
    if gpu.mixed_size:
        out.append("mixed-size mode")
    if (scheduler := scheduler_of(gpu)) not in ("", DEFAULT):
        out.append(f"scheduler {scheduler}")
    return tuple(out)


def line(inventory: Inventory, gpu: Gpu, found: Fragmentation | None) -> str:
    """Summarize a GPU's content in one line."""
    if gpu.lost:
        return "The driver can no longer access this GPU. A reboot of the node usually restores it."
    if gpu.passthrough:
        return "The whole GPU is passed through to VMs. The NVIDIA driver of this node does not see it."
    if found:
        held = sum(i.held for i in gpu.instances)
        count = words.number(len(gpu.instances), "instance")
        parts = [f"{count}: {held} held, {len(gpu.instances) - held} idle" if gpu.instances else "no instances yet"]
        total = inventory.family(gpu).memory_slices
        parts.append(f"{len(found.free)} of {total} memory slices free")
        return "; ".join([*parts, *([_shares(inventory, gpu)] if gpu.vgpus else [])])
    if gpu.vgpus:
        return _shares(inventory, gpu)
    if gpu.holders:
        return f"In use as a whole by {words.clean(', '.join(map(str, gpu.holders)), 200)}."
    return "Not partitioned. Nothing runs on it." if gpu.mig.capable else "Nothing runs on it."


def _shares(inventory: Inventory, gpu: Gpu) -> str:
    table = inventory.vgpu_table(gpu)
    text = shares.counts(shares.current_vgpus(gpu, table))
    held = sum(v.held for v in gpu.vgpus)
    return f"{words.number(len(gpu.vgpus), 'vGPU')} ({text}): {held} held, {len(gpu.vgpus) - held} idle"


def fragmentation_text(inventory: Inventory, gpu: Gpu, found: Fragmentation) -> str:
    """Describe fragmented free memory and whether it can be closed; "" if there is none."""
    lost = words.listed(f"{r.lost} more {r.profile}" if r.lost > 1 else f"one more {r.profile}" for r in found.lost)
    sentences = []
    if found.stranded:
        many = len(found.stranded) > 1
        name = words.slices(found.stranded)
        text = f"{name[0].upper()}{name[1:]} {'are' if many else 'is'} free, but nothing fits there"
        sentences.append(f"{text}{_why(inventory, gpu, found)}.")
    if lost:
        moved = f"A hole: there would be room for {lost} if idle instances moved"
        sentences.append(f"{moved}{' (one or the other)' if len(found.lost) > 1 else ''}.")
    return " ".join(sentences)


def offered(found: Fragmentation) -> tuple[ProfileCapacity, ...]:
    """Return the profiles that the page offers to make room for.

    If one more of a profile fits already, creating it closes no hole. Such a profile is offered only if there is no
    better one.
    """
    return tuple(profile for profile in found.lost if not profile.now) or found.lost


def _why(inventory: Inventory, gpu: Gpu, found: Fragmentation) -> str:
    if found.lost:
        return ""
    family = inventory.family(gpu)
    used = sum(family.by_id[i.profile_id].compute_slices for i in gpu.instances if i.profile_id in family.by_id)
    if used >= family.compute_slices:
        return f": all {family.compute_slices} compute slices are in use. It is left over, and there is nothing to do"
    return ". No better arrangement of these instances exists"
