"""One GPU: a large picture, its instances, what still fits and what would help, and how to change it."""

from __future__ import annotations

from typing import Any

import msgspec

from aliquot.core.model.inventory import Gpu, Inventory
from aliquot.core.planner.fragmentation import Holes, holes
from aliquot.dashboard import formatting as words
from aliquot.dashboard.page import Region, Shown, Visit
from aliquot.dashboard.pages import capacity as fits
from aliquot.dashboard.pages import geometry_input as typed
from aliquot.dashboard.pages import instances, vgpus
from aliquot.dashboard.pages.gpu_card import GpuView, view
from aliquot.dashboard.pages.shared import FLEET, Crumb, absent, first, gpu_at, refusals, standing
from aliquot.dashboard.view_models import NodeLook, SriovRow, VgpuRow

TAGS = ("cut", "make-room", "functions", "vgpus")


class Choice(msgspec.Struct, frozen=True):
    """A profile in the chooser by counts: how many there are, and the most that a GPU can hold."""

    name: str
    present: int
    most: int
    memory: str


class Cutting(msgspec.Struct, frozen=True):
    """What the forms for cutting offer. ``mode`` and ``pending`` are MIG's; ``text`` is the geometry that is there, as
    it would be typed, or what was typed and is wrong by ``faults``.
    """

    node: str
    gpu: str
    name: str
    capable: bool
    mode: str
    pending: str
    choices: tuple[Choice, ...] = ()
    text: str = ""
    count: int = 0
    held: int = 0
    faults: tuple[str, ...] = ()


async def show(visit: Visit) -> Shown:
    look = visit.source.fleet.by_name.get(visit.params["node"])
    if look is None:
        return absent(visit, "node", visit.params["node"], FLEET)
    up = Crumb(words.clean(look.name), words.path("nodes", look.name))
    found = gpu_at(look, visit.params["pci"])
    if found is None:
        return absent(visit, "GPU", visit.params["pci"], up)
    inventory, gpu = found
    hole = holes(inventory, gpu)
    drawn = view(look, inventory, gpu, hole)
    may = await refusals(visit, TAGS, look)
    ways = tuple(may.items())
    want = first(visit, "want")
    regions = [
        _head(look, gpu, drawn),
        _picture(inventory, gpu, drawn, hole, want),
        *([_instances(look, gpu, ways, may)] if gpu.mig.capable or gpu.holders else []),
        *([_fits(look, inventory, gpu, hole, want, ways, may)] if hole else []),
        *([_forms(_cutting(look, inventory, gpu, first(visit, "mig")), ways, may)] if gpu.mig.capable else []),
        *_virtual(visit, look, gpu, ways, may),
    ]
    title = f"{drawn.name} of {up.word}"
    context = {"crumbs": (FLEET, up), "gpu": drawn, "divided": hole is not None, "ids": tuple(r.id for r in regions)}
    return Shown("gpu.html", title, tuple(regions), context)


def _head(look: NodeLook, gpu: Gpu, drawn: GpuView) -> Region:
    key = (look.seen if look.stale else 0, look.trouble, look.changing, drawn.facts, drawn.drift)
    return Region("gpu", "gpu_head.html", key, {"look": standing(look), "gpu": drawn, "node": look.name})


def _picture(inventory: Inventory, gpu: Gpu, drawn: GpuView, hole: Holes | None, want: str) -> Region:
    bar = drawn.bar
    known = hole is not None and want in {r.profile for r in hole.rooms}
    if hole and known:
        bar = fits.pointed(inventory, gpu, bar, hole, want)
    known_want = want if known else ""
    context = {"gpu": drawn, "bar": bar, "want": known_want}
    return Region("picture", "gpu_picture.html", (drawn, bar, known_want), context)


def _instances(look: NodeLook, gpu: Gpu, ways: tuple[Any, ...], may: dict[str, str]) -> Region:
    usage = tuple(u for u in look.usage if u.gpu == gpu.pci)
    context = {"rows": instances.rows(gpu, usage), "gpu": gpu, "node": look.name, "may": may}
    whole = next((u for u in usage if u.instance is None), None)
    context["whole"] = words.memory(whole.memory_used_mib) if whole else ""
    return Region("instances", "gpu_instances.html", (gpu, usage, ways), context)


def _fits(
    look: NodeLook, inventory: Inventory, gpu: Gpu, hole: Holes, want: str, ways: tuple[Any, ...], may: dict[str, str]
) -> Region:
    way = fits.way(inventory, gpu, hole, want) if want else None
    rows = fits.fits(inventory, gpu, hole)
    family = inventory.family(gpu)
    source = "this GPU's driver" if family.source == "driver" else "the catalog"
    context = {
        "rows": rows,
        "way": way,
        "want": want,
        "unknown": words.clean(want, 60) if want and way is None else "",
        "node": look.name,
        "gpu": gpu,
        "may": may,
        "path": words.path("nodes", look.name, "gpus", gpu.pci),
        "source_of_table": source,
        "estimates": tuple(words.clean(e, 200) for e in family.estimates),
    }
    return Region("fits", "gpu_fits.html", (rows, way, ways), context)


def _forms(cutting: Cutting, ways: tuple[Any, ...], may: dict[str, str]) -> Region:
    return Region("forms", "gpu_forms.html", (cutting, ways), {"cut": cutting, "may": may})


def _cutting(look: NodeLook, inventory: Inventory, gpu: Gpu, given: str) -> Cutting:
    capable = gpu.mig.capable and not gpu.lost and not gpu.passthrough
    base = Cutting(look.name, gpu.pci, words.gpu_name(gpu), capable, gpu.mig.current, gpu.mig.pending)
    if not capable or gpu.family is None:
        return base
    present = [i.profile_id for i in gpu.instances]
    choices = tuple(
        Choice(p.name, present.count(p.id), p.max_instances, words.memory(p.memory_mib))
        for p in inventory.family(gpu).profiles
    )
    ordered = sorted(gpu.instances, key=lambda i: i.place.start)
    text = ",".join(f"{i.profile}@{i.place.start}" for i in ordered)
    held = sum(i.held for i in gpu.instances)
    return msgspec.structs.replace(
        base,
        choices=choices,
        text=words.clean(given, 500) if given else text,
        count=len(present),
        held=held,
        faults=typed.faults(inventory, gpu, given),
    )


def _virtual(visit: Visit, look: NodeLook, gpu: Gpu, ways: tuple[Any, ...], may: dict[str, str]) -> tuple[Region, ...]:
    """Virtual functions and vGPUs, where this GPU can have them."""
    virtual = visit.source.virtual
    sriov = next((r for r in virtual.sriov if (r.node, r.gpu) == (look.name, gpu.pci)), None)
    rows = tuple(r for r in virtual.vgpus if (r.node, r.parent) == (look.name, gpu.pci))
    if sriov is None and not rows:
        return ()
    return (_sharing(sriov, rows, ways, may),)


def _sharing(sriov: SriovRow | None, rows: tuple[VgpuRow, ...], ways: tuple[Any, ...], may: dict[str, str]) -> Region:
    context = {"sriov": sriov, **vgpus.table(rows), "may": may}
    return Region("sharing", "gpu_sharing.html", (sriov, rows, ways), context)
