"""A GPU in words and pictures: what its card on the node's page and the head of its own page show."""

from __future__ import annotations

import re

import msgspec

from aliquot.core.model.inventory import Gpu, Inventory
from aliquot.core.model.placement import Placement
from aliquot.core.model.plan import Drift
from aliquot.core.planner.fragmentation import Fragmentation, ProfileCapacity, find_fragmentation
from aliquot.core.rendering import mig_picture
from aliquot.core.rendering import vgpu_picture as shares
from aliquot.dashboard import formatting as words
from aliquot.dashboard import gpu_bars as pictures
from aliquot.dashboard.gpu_bars import GpuBar
from aliquot.dashboard.view_models import ObservedNode

WANTED = "wanted"
_AT = re.compile(r"(\d+) x (\S+) at memory slice (\d+)")


class GpuView(msgspec.Struct, frozen=True):
    """``facts`` are words beside the title, ``line`` what it holds, ``fragmentation`` what is wrong with its free
    memory ("" where nothing is), ``closable`` the profiles that room can be made for, ``drift`` how it differs from
    what was asked. ``lower`` is a second bar: vGPUs that live inside GPU instances have none.
    """

    id: str
    name: str
    product: str
    pci: str
    uuid: str
    path: str
    bar: GpuBar
    facts: tuple[str, ...] = ()
    line: str = ""
    fragmentation: str = ""
    closable: tuple[ProfileCapacity, ...] = ()
    drift: tuple[str, ...] = ()
    lost: bool = False


def gpu_view(view: ObservedNode, inventory: Inventory, gpu: Gpu, found: Fragmentation | None = None) -> GpuView:
    """Everything about one GPU of a node."""
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
        drift=tuple(words.placed(words.clean(d.message.removeprefix(f"GPU {gpu.pci}: "), 300)) for d in drift),
        lost=gpu.lost,
    )


def _odd(gpu: Gpu, drift: tuple[Drift, ...]) -> tuple[str, ...]:
    """The letters of instances that should not be there."""
    extra = [d.message for d in drift if d.kind == "extra"]
    ordered = sorted(gpu.instances, key=lambda i: i.place.start)
    named = [(mig_picture.LETTERS[n], f"{i.profile} at {i.placement} (id {i.id},") for n, i in enumerate(ordered)]
    return tuple(letter for letter, text in named if any(text in message for message in extra))


def _missing(inventory: Inventory, gpu: Gpu, drift: tuple[Drift, ...]) -> tuple[pictures.BarBlock, ...]:
    """Where an instance should be and is none, as far as a place was asked."""
    family = inventory.family(gpu)
    marks: list[pictures.BarBlock] = []
    for each in drift:
        match = _AT.search(each.message) if each.kind == "missing" else None
        profile = family.by_name.get(match[2]) if match else None
        if match and profile:
            place = Placement(int(match[3]), profile.size)
            marks += pictures.marks(family.memory_slices, [place], WANTED, f"{profile.name} should be here")
    return tuple(marks)


def facts(gpu: Gpu) -> tuple[str, ...]:
    """Short words about a GPU's modes."""
    if gpu.lost:
        return ("fallen off the bus",)
    if gpu.passthrough:
        return ("handed out whole to virtual machines",)
    out = ["no MIG"]
    if gpu.mig.capable:
        pending = gpu.mig.pending != gpu.mig.current
        out = [f"MIG {gpu.mig.current}" + (f", {gpu.mig.pending} after the next reset" if pending else "")]
    virtual = gpu.virtual
    if virtual and virtual.total:
        out.append(words.number(len(virtual.functions), "virtual function"))
    if virtual and virtual.mixed_size:
        out.append("mixed-size mode")
    return tuple(out)


def line(inventory: Inventory, gpu: Gpu, found: Fragmentation | None) -> str:
    """What a GPU holds, in one line."""
    if gpu.lost:
        return "The driver does not reach this GPU any more. A reboot of the node usually brings it back."
    if gpu.passthrough:
        return "The whole GPU belongs to virtual machines. The NVIDIA driver of this node does not see it."
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
    return "Not divided, and nothing runs on it." if gpu.mig.capable else "Nothing runs on it."


def _shares(inventory: Inventory, gpu: Gpu) -> str:
    table = inventory.vgpu_table(gpu)
    text = shares.summary(shares.current_vgpus(gpu, table)).split("  ")[0]
    held = sum(v.held for v in gpu.vgpus)
    return f"{words.number(len(gpu.vgpus), 'vGPU')} ({text}): {held} held, {len(gpu.vgpus) - held} idle"


def fragmentation_text(inventory: Inventory, gpu: Gpu, found: Fragmentation) -> str:
    """What is wrong with free memory, and whether it can be helped; "" where nothing is."""
    lost = words.listed(f"{r.lost} more {r.profile}" if r.lost > 1 else f"one more {r.profile}" for r in found.lost)
    sentences = []
    if found.stranded:
        many = len(found.stranded) > 1
        name = words.slices(found.stranded)
        text = f"{name[0].upper()}{name[1:]} {'are' if many else 'is'} free, but nothing fits there"
        sentences.append(f"{text}{_why(inventory, gpu, found)}.")
    if lost:
        moved = f"A hole: if idle instances moved, there would be room for {lost}"
        sentences.append(f"{moved}{' (one or the other)' if len(found.lost) > 1 else ''}.")
    return " ".join(sentences)


def offered(found: Fragmentation) -> tuple[ProfileCapacity, ...]:
    """What room can be made for. Where one fits as things lie, making one moves nothing and closes no hole: such a
    profile is offered only where there is no other.
    """
    return tuple(profile for profile in found.lost if not profile.now) or found.lost


def _why(inventory: Inventory, gpu: Gpu, found: Fragmentation) -> str:
    if found.lost:
        return ""
    family = inventory.family(gpu)
    used = sum(family.by_id[i.profile_id].compute_slices for i in gpu.instances if i.profile_id in family.by_id)
    if used >= family.compute_slices:
        return f": all {family.compute_slices} compute slices are taken. It is left over, not lost: nothing to do"
    return ". No better arrangement of these instances exists"
