"""The page of one GPU: picture, instances, remaining capacity, and forms to change it."""

from __future__ import annotations

import msgspec

from aliquot.core.model.inventory import Gpu, Inventory
from aliquot.core.planner.fragmentation import Fragmentation, find_fragmentation
from aliquot.dashboard import formatting as words
from aliquot.dashboard.page import PageContent, Region, Visit
from aliquot.dashboard.pages import capacity as fits
from aliquot.dashboard.pages import geometry_input as typed
from aliquot.dashboard.pages import instances, vgpus
from aliquot.dashboard.pages.gpu_view import GpuView, gpu_view
from aliquot.dashboard.pages.shared import FLEET, Crumb, absent, first, freshness, gpu_at, refusals
from aliquot.dashboard.view_models import ObservedNode, SriovRow, VgpuRow

TAGS = ("cut", "make-room", "functions", "vgpus")


class ProfileChoice(msgspec.Struct, frozen=True):
    """A profile in the form by counts: the present number and the maximum of this GPU."""

    name: str
    present: int
    most: int
    memory: str


class PartitionForm(msgspec.Struct, frozen=True):
    """The content of the forms that partition a GPU. ``mode`` and ``pending`` are the MIG modes.

    ``text`` is the current geometry as it would be typed, or the invalid text that ``errors`` are about.
    """

    node: str
    gpu: str
    name: str
    capable: bool
    mode: str
    pending: str
    choices: tuple[ProfileChoice, ...] = ()
    text: str = ""
    count: int = 0
    held: int = 0
    errors: tuple[str, ...] = ()


async def show(visit: Visit) -> PageContent:
    view = visit.source.fleet.by_name.get(visit.params["node"])
    if view is None:
        return absent(visit, "node", visit.params["node"], FLEET)
    up = Crumb(words.clean(view.name), words.path("nodes", view.name))
    found = gpu_at(view, visit.params["pci"])
    if found is None:
        return absent(visit, "GPU", visit.params["pci"], up)
    inventory, gpu = found
    fragmentation = find_fragmentation(inventory, gpu)
    drawn = gpu_view(view, inventory, gpu, fragmentation)
    may = await refusals(visit, TAGS, view)
    want = first(visit, "want")
    regions = [
        _head(view, gpu, drawn),
        _picture(inventory, gpu, drawn, fragmentation, want),
        *([_instances(view, gpu, may)] if gpu.mig.capable or gpu.holders else []),
        *([_fits(view, inventory, gpu, fragmentation, want, may)] if fragmentation else []),
        *([_forms(_partition_form(view, inventory, gpu, first(visit, "mig")), may)] if gpu.mig.capable else []),
        *_virtual(visit, view, gpu, may),
    ]
    title = f"{drawn.name} of {up.word}"
    context = {
        "crumbs": (FLEET, up),
        "gpu": drawn,
        "divided": fragmentation is not None,
        "ids": tuple(r.id for r in regions),
    }
    return PageContent("gpu.html", title, tuple(regions), context)


def _head(view: ObservedNode, gpu: Gpu, drawn: GpuView) -> Region:
    key = (view.observed_at if view.stale else 0, view.error, view.changing, drawn.facts, drawn.drift)
    return Region("gpu", "gpu_head.html", key, {"look": freshness(view), "gpu": drawn, "node": view.name})


def _picture(inventory: Inventory, gpu: Gpu, drawn: GpuView, fragmentation: Fragmentation | None, want: str) -> Region:
    bar = drawn.bar
    known = fragmentation is not None and want in {r.profile for r in fragmentation.capacities}
    if fragmentation and known:
        bar = fits.pointed(inventory, gpu, bar, fragmentation, want)
    known_want = want if known else ""
    context = {"gpu": drawn, "bar": bar, "want": known_want}
    return Region("picture", "gpu_picture.html", (drawn, bar, known_want), context)


def _instances(view: ObservedNode, gpu: Gpu, may: dict[str, str]) -> Region:
    usage = tuple(u for u in view.usage if u.gpu == gpu.pci)
    context = {"rows": instances.rows(gpu, usage), "gpu": gpu, "node": view.name, "may": may}
    whole = next((u for u in usage if u.instance is None), None)
    context["whole"] = words.memory(whole.memory_used_mib) if whole else ""
    return Region("instances", "gpu_instances.html", (gpu, usage, tuple(may.items())), context)


def _fits(
    view: ObservedNode,
    inventory: Inventory,
    gpu: Gpu,
    fragmentation: Fragmentation,
    want: str,
    may: dict[str, str],
) -> Region:
    advice = fits.advice(inventory, gpu, fragmentation, want) if want else None
    rows = fits.fits(inventory, gpu, fragmentation)
    family = inventory.family(gpu)
    source = "this GPU's driver" if family.source == "driver" else "the catalog"
    context = {
        "rows": rows,
        "way": advice,
        "want": want,
        "unknown": words.clean(want, 60) if want and advice is None else "",
        "node": view.name,
        "gpu": gpu,
        "may": may,
        "path": words.path("nodes", view.name, "gpus", gpu.pci),
        "source_of_table": source,
        "estimates": tuple(words.clean(e, 200) for e in family.estimates),
    }
    return Region("fits", "gpu_fits.html", (rows, advice, tuple(may.items())), context)


def _forms(form: PartitionForm, may: dict[str, str]) -> Region:
    return Region("forms", "gpu_forms.html", (form, tuple(may.items())), {"cut": form, "may": may})


def _partition_form(view: ObservedNode, inventory: Inventory, gpu: Gpu, given: str) -> PartitionForm:
    capable = gpu.mig.capable and not gpu.lost and not gpu.passthrough
    base = PartitionForm(view.name, gpu.pci, words.gpu_name(gpu), capable, gpu.mig.current, gpu.mig.pending)
    if not capable or gpu.family is None:
        return base
    present = [i.profile_id for i in gpu.instances]
    choices = tuple(
        ProfileChoice(p.name, present.count(p.id), p.max_instances, words.memory(p.memory_mib))
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
        errors=typed.errors(inventory, gpu, given),
    )


def _virtual(visit: Visit, view: ObservedNode, gpu: Gpu, may: dict[str, str]) -> tuple[Region, ...]:
    """Build the region of virtual functions and vGPUs, if this GPU supports them."""
    virtual = visit.source.virtual
    sriov = next((r for r in virtual.sriov if (r.node, r.gpu) == (view.name, gpu.pci)), None)
    rows = tuple(r for r in virtual.vgpus if (r.node, r.parent) == (view.name, gpu.pci))
    if sriov is None and not rows:
        return ()
    return (_sharing(sriov, rows, may),)


def _sharing(sriov: SriovRow | None, rows: tuple[VgpuRow, ...], may: dict[str, str]) -> Region:
    context = {"sriov": sriov, **vgpus.table(rows), "may": may}
    return Region("sharing", "gpu_sharing.html", (sriov, rows, tuple(may.items())), context)
