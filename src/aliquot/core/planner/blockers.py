"""Why a wish for one GPU cannot be met: the rule, the slices in the way, the holders, and the next command."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from aliquot.core.model.desired import DesiredInstance, RuleCode
from aliquot.core.model.driver_branches import FIRST_WITH, PLACED_COMPUTE_INSTANCES
from aliquot.core.model.geometry import geometry, geometry_text
from aliquot.core.model.inventory import UNKNOWN_HOLDER, Gpu, GpuInstance, Holder
from aliquot.core.model.placement import slices
from aliquot.core.model.plan import Blocker
from aliquot.core.planner import compute_instances as compute
from aliquot.core.planner import placement_search as pack
from aliquot.core.planner.compute_grouping import groupings
from aliquot.core.planner.placement_table import PlacedInstance, PlacementTable
from aliquot.core.planner.rules import refusals

_MAX_LISTED = 3
"""Holders that a next step names."""


def holders_next_step(holders: Sequence[Holder]) -> str:
    """What to do about holders: end them, or wait for them. What would end them unasked is not proposed."""
    if any(h.id == UNKNOWN_HOLDER for h in holders):
        return "find out what uses it and end that, then destroy it with nvidia-smi: its holders cannot be seen here"
    named = [str(h) for h in dict.fromkeys(holders)]
    more = f" and {len(named) - _MAX_LISTED} more" if len(named) > _MAX_LISTED else ""
    return f"end {', '.join(named[:_MAX_LISTED]) or 'the holders'}{more}, or add --policy wait"


def mig_argument(table: PlacementTable, counts: Counter[int]) -> str:
    """A geometry as ``--mig`` takes it, without characters that a shell expands: ``3g.20gb,1g.5gb:2``."""
    parts = [(table.profiles[p].name, counts[p]) for p in table.canonical(p for p in counts if counts[p])]
    return ",".join(name if n == 1 else f"{name}:{n}" for name, n in parts) or "empty"


def request_text(table: PlacementTable, requests: Sequence[DesiredInstance]) -> str:
    """What was asked, for people: ``3g.20gb:1,1g.5gb:2``, or ``1c.3g.20gb:2``."""
    return geometry_text(geometry(name for request in requests for name in _request_names(table, request)))


def _request_names(table: PlacementTable, request: DesiredInstance) -> list[str]:
    profile = table.profiles.get(request.profile_id)
    parts = [profile.compute_profile(part) for part in request.compute] if profile and request.loose else []
    return [part.name for part in parts if part] or [request.name]


def infeasible(table: PlacementTable, gpu: Gpu, requests: Sequence[DesiredInstance]) -> Blocker | None:
    """The blocker for a wish that no state of this GPU can ever meet, or None if some state can."""
    requested = request_text(table, requests)
    requests = groupings(table, requests)[0]
    counts = Counter(w.profile_id for w in requests)
    refusal = next(refusals(table, counts), None)
    if refusal is not None:
        return _impossible(table, gpu, requests, requested, refusal.rule, refusal.message)
    for request in requests:
        blocker = _request_blocker(table, gpu, request)
        if blocker is not None:
            return blocker
    fixed = [(w.profile_id, w.start) for w in requests if w.start is not None]
    taken = 0
    for place in fixed:
        clash = table.masks[place] & taken
        if clash:
            return _impossible(
                table, gpu, requests, requested, "PLACEMENT", "two asked placements overlap", slices(clash)
            )
        taken |= table.masks[place]
    if next(pack.arrangements(table, counts, fixed), None) is None:
        where = " beside the asked placements" if fixed else ""
        text = f"each count is legal, but no placement of all of them exists{where}"
        return _impossible(table, gpu, requests, requested, "PLACEMENT", text, slices(taken))
    return None


def _request_blocker(table: PlacementTable, gpu: Gpu, request: DesiredInstance) -> Blocker | None:
    profile = table.profiles[request.profile_id]
    if request.start is not None and request.start not in profile.starts:
        starts = ", ".join(str(s) for s in profile.starts)
        return Blocker(
            rule="PLACEMENT",
            message=f"{profile.name} cannot start at memory slice {request.start} (it can at {starts})",
            gpu=gpu.pci,
            next_step=f"aliquot profiles {gpu.pci}",
        )
    if not compute.fits(profile, request.compute, request.compute_starts):
        placed = msgspec.structs.replace(profile, placed_compute=True)
        if compute.fits(placed, request.compute, request.compute_starts):
            return Blocker(
                rule="COMPUTE_PLACEMENT",
                message=f"GPU {gpu.pci}: this driver chooses the placement of compute instances itself, and never the "
                f"one asked in {profile.name}",
                gpu=gpu.pci,
                next_step=f"update the NVIDIA driver to R{FIRST_WITH[PLACED_COMPUTE_INSTANCES]} or later, then run: "
                "aliquot show",
            )
        return Blocker(
            rule="COMPUTE_INSTANCES",
            message=f"the compute instances asked do not fit into one {profile.name}",
            gpu=gpu.pci,
            next_step=f"aliquot profiles {gpu.pci}",
        )
    return None


def _impossible(
    table: PlacementTable,
    gpu: Gpu,
    requests: Sequence[DesiredInstance],
    requested: str,
    rule: RuleCode,
    why: str,
    where: tuple[int, ...] = (),
) -> Blocker:
    suggestion = _nearest(table, gpu, requests)
    return Blocker(
        rule=rule,
        message=f"{gpu.product} cannot hold {requested}: {why}",
        gpu=gpu.pci,
        slices=where,
        suggestion=suggestion,
        next_step=f"aliquot plan --gpu {gpu.pci} --mig {suggestion}" if suggestion else f"aliquot profiles {gpu.pci}",
    )


def _nearest(table: PlacementTable, gpu: Gpu, requests: Sequence[DesiredInstance]) -> str | None:
    """The nearest wish that this GPU can have now, which destroys nothing that is held or that was asked for as well.
    None if it is what was asked, or only destroys where something new was asked for.
    """
    wanted = Counter(w.profile_id for w in requests if w.profile_id in table.profiles)
    retained, left = [], wanted.copy()
    for instance in sorted(gpu.instances, key=lambda i: not i.held):
        if instance.held or left[instance.profile_id] > 0:
            retained.append(instance)
            left[instance.profile_id] -= 1
    pinned: list[PlacedInstance] = [(i.profile_id, i.place.start) for i in retained]
    if not all(place in table.masks for place in pinned) or not all(_has_default_compute(table, i) for i in retained):
        return None  # profiles alone do not say what is there
    nearest = pack.nearest(table, wanted, pinned)
    present = Counter(i.profile_id for i in gpu.instances)
    if not nearest or nearest == wanted or (wanted - present and not nearest - present):
        return None
    return mig_argument(table, nearest)


def _has_default_compute(table: PlacementTable, instance: GpuInstance) -> bool:
    """Whether it holds what its profile means by itself, or nothing yet."""
    inside = [c.profile_id for c in instance.compute_instances]
    return inside in ([], [table.profiles[instance.profile_id].default_compute.id])


def held(
    table: PlacementTable, gpu: Gpu, requests: Sequence[DesiredInstance], to_destroy: Sequence[GpuInstance]
) -> Blocker:
    """The blocker for a wish that can only be met by destroying held instances."""
    mask = 0
    for instance in to_destroy:
        mask |= instance.place.mask
    names = ", ".join(f"{i.profile} at {i.placement}" for i in to_destroy)
    count = f"{len(to_destroy)} instance is held" if len(to_destroy) == 1 else f"{len(to_destroy)} instances are held"
    holders = tuple(h for i in to_destroy for h in i.holders)
    step = holders_next_step(holders)
    if holders and all(h.kind == "vgpu" for h in holders) and not any(v.held for v in gpu.vgpus):
        step = f"destroy the vGPUs, which nobody uses, then the same again: aliquot apply --gpu {gpu.pci} --vgpu none"
    return Blocker(
        rule="HELD",
        message=f"GPU {gpu.pci} cannot become {request_text(table, requests)}: {count} ({names})",
        gpu=gpu.pci,
        slices=slices(mask),
        holders=holders,
        suggestion=_nearest(table, gpu, requests),
        next_step=step,
    )


def not_capable(gpu: Gpu) -> Blocker:
    return Blocker(
        rule="NOT_CAPABLE", message=f"GPU {gpu.pci} ({gpu.product}) has no MIG", gpu=gpu.pci, next_step="aliquot show"
    )


def lost(gpu: Gpu) -> Blocker:
    return Blocker(
        rule="GPU_LOST",
        message=f"GPU {gpu.pci} ({gpu.product}) has fallen off the bus",
        gpu=gpu.pci,
        next_step="reboot the node, then: aliquot show",
    )


def busy(gpu: Gpu, what: str) -> Blocker:
    """Processes use the whole GPU, outside any instance: the driver refuses mode changes and new instances."""
    return Blocker(
        rule="HELD",
        message=f"GPU {gpu.pci} is in use as a whole, {what} meanwhile",
        gpu=gpu.pci,
        holders=gpu.holders,
        next_step=holders_next_step(gpu.holders),
    )
