"""``aliquot profiles``: the profiles of each GPU, their placements, and those that still fit now."""

from __future__ import annotations

from typing import Any

from aliquot.cli.framework import output
from aliquot.cli.framework import target_node as node
from aliquot.cli.framework.parser import Args
from aliquot.cli.framework.views import gpu_drawing as draw
from aliquot.core.model.catalog import Family, Profile
from aliquot.core.model.inventory import Gpu, Inventory
from aliquot.core.model.placement import Placement
from aliquot.core.rendering import gpu_groups

_HEAD = ("profile", "id", "max", "memory MiB", "SM", "placements")
Fits = dict[int, tuple[Placement, ...]]


def run(args: Args) -> int:
    inventory = node.inventory(args)
    words = node.gpu_words(args)
    gpus = [g for g in node.gpus(inventory, words) if words or g.mig.capable]
    document = output.build("Profiles", node=inventory.node, gpus=[_plain(g, inventory) for g in gpus])
    groups = gpu_groups.group_gpus(
        gpus, lambda gpu: _text((gpu_groups.without_identity(gpu),), inventory), each=args.each
    )
    output.emit(document, args.output, "\n\n".join(_text(g, inventory) for g in groups) or _none(inventory))
    return 0


def _none(inventory: Inventory) -> str:
    return f"none of the {len(inventory.gpus)} GPUs of {inventory.node} is MIG-capable"


def _fits(gpu: Gpu, family: Family) -> Fits:
    from aliquot.core.planner.fragmentation import legal_placements

    return legal_placements(family, gpu)


def rows(family: Family, fits: Fits | None) -> list[tuple[str, ...]]:
    """Return the table of a family; with ``fits`` also the starts at which each profile fits now."""
    out: list[tuple[str, ...]] = [(*_HEAD, "" if fits is None else "fits now", "")]
    for p in family.profiles:
        fits_text = "" if fits is None else _starts(fits.get(p.id, ())) or "-"
        places = f"{{{_starts(p.placements)}}}:{p.size}"
        out.append(
            (
                p.name,
                str(p.id),
                str(p.max_instances),
                _number(p.memory_mib),
                _number(p.sm),
                places,
                fits_text,
                uncertainty(p),
            )
        )
    return out


def uncertainty(profile: Profile) -> str:
    """Return which facts of a profile are not from hardware or NVIDIA's documents: ``estimate: memory, sm``."""
    words: dict[str, list[str]] = {}
    for fact, word in profile.confidence.items():
        if word in ("estimate", "unknown", "inferred"):
            words.setdefault(word, []).append(fact)
    return "; ".join(f"{word}: {', '.join(facts)}" for word, facts in words.items())


def _starts(places: tuple[Placement, ...]) -> str:
    return ",".join(str(p.start) for p in places)


def _number(value: int | None) -> str:
    return "?" if value is None else str(value)


def _text(group: tuple[Gpu, ...], inventory: Inventory) -> str:
    gpu, title = group[0], gpu_groups.group_title(group)
    if not gpu.mig.capable:
        return f"{title}: no MIG"
    family = inventory.family(gpu)
    head = f"{title}   MIG {gpu.mig.current}   family {family.name}"
    head += f"   {family.memory_slices} memory slices, {family.compute_slices} compute slices"
    return "\n".join([head, *draw.table(rows(family, _fits(gpu, family)))])


def _plain(gpu: Gpu, inventory: Inventory) -> dict[str, Any]:
    facts: dict[str, Any] = {"pci": gpu.pci, "uuid": gpu.uuid, "product": gpu.product, "mig_capable": gpu.mig.capable}
    if not gpu.mig.capable:
        return facts | {"profiles": []}
    family = inventory.family(gpu)
    fits = _fits(gpu, family)
    return facts | {"family": family.name, "profiles": [plain_profile(p, fits.get(p.id, ())) for p in family.profiles]}


def plain_profile(profile: Profile, fits: tuple[Placement, ...] | None = None) -> dict[str, Any]:
    """Return a profile as plain data."""
    out: dict[str, Any] = {
        "name": profile.name,
        "id": profile.id,
        "max_instances": profile.max_instances,
        "compute_slices": profile.compute_slices,
        "memory_mib": profile.memory_mib,
        "sm": profile.sm,
        "placements": [str(p) for p in profile.placements],
        "compute_instances": [{"name": c.name, "id": c.id, "max_instances": c.max_instances} for c in profile.compute],
        "confidence": profile.confidence,
    }
    return out | ({} if fits is None else {"fits_now": [str(p) for p in fits]})
