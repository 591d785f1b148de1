"""Why a wish for one GPU cannot be met: the rule, the slices in the way, the holders, and the next command."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from aliquot.core.model.desired import InstanceWish
from aliquot.core.model.driver_branches import FIRST_WITH, PLACED_COMPUTE_INSTANCES
from aliquot.core.model.geometry import geometry, geometry_text
from aliquot.core.model.inventory import UNKNOWN_HOLDER, Gpu, GpuInstance, Holder
from aliquot.core.model.placement import slices
from aliquot.core.model.plan import Blocker
from aliquot.core.planner import compute_instances as compute
from aliquot.core.planner import placement_search as pack
from aliquot.core.planner.compute_grouping import groupings
from aliquot.core.planner.placement_table import Board, Placed
from aliquot.core.planner.rules import refusals

_NAMED = 3
"""Holders that a next step names."""


def ways_out(holders: Sequence[Holder]) -> str:
    """What to do about holders: end them, or wait for them. What would end them unasked is not proposed."""
    if any(h.id == UNKNOWN_HOLDER for h in holders):
        return "find out what uses it and end that, then destroy it with nvidia-smi: its holders cannot be seen here"
    named = [str(h) for h in dict.fromkeys(holders)]
    more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
    return f"end {', '.join(named[:_NAMED]) or 'the holders'}{more}, or add --policy wait"


def wish_text(board: Board, counts: Counter[int]) -> str:
    """A geometry as ``--mig`` takes it, without characters that a shell expands: ``3g.20gb,1g.5gb:2``."""
    parts = [(board.profiles[p].name, counts[p]) for p in board.canonical(p for p in counts if counts[p])]
    return ",".join(name if n == 1 else f"{name}:{n}" for name, n in parts) or "empty"


def asked_text(board: Board, wishes: Sequence[InstanceWish]) -> str:
    """What was asked, for people: ``3g.20gb:1,1g.5gb:2``, or ``1c.3g.20gb:2``."""
    return geometry_text(geometry(name for wish in wishes for name in _names(board, wish)))


def _names(board: Board, wish: InstanceWish) -> list[str]:
    profile = board.profiles.get(wish.profile_id)
    parts = [profile.compute_profile(part) for part in wish.compute] if profile and wish.loose else []
    return [part.name for part in parts if part] or [wish.name]


def infeasible(board: Board, gpu: Gpu, wishes: Sequence[InstanceWish]) -> Blocker | None:
    """The blocker for a wish that no state of this GPU can ever meet, or None if some state can."""
    asked = asked_text(board, wishes)
    wishes = groupings(board, wishes)[0]
    counts = Counter(w.profile_id for w in wishes)
    refusal = next(refusals(board, counts), None)
    if refusal is not None:
        return _impossible(board, gpu, wishes, asked, refusal.rule, refusal.message)
    for wish in wishes:
        blocker = _bad_wish(board, gpu, wish)
        if blocker is not None:
            return blocker
    fixed = [(w.profile_id, w.start) for w in wishes if w.start is not None]
    taken = 0
    for place in fixed:
        clash = board.masks[place] & taken
        if clash:
            return _impossible(board, gpu, wishes, asked, "PLACEMENT", "two asked placements overlap", slices(clash))
        taken |= board.masks[place]
    if next(pack.arrangements(board, counts, fixed), None) is None:
        where = " beside the asked placements" if fixed else ""
        text = f"each count is legal, but no placement of all of them exists{where}"
        return _impossible(board, gpu, wishes, asked, "PLACEMENT", text, slices(taken))
    return None


def _bad_wish(board: Board, gpu: Gpu, wish: InstanceWish) -> Blocker | None:
    profile = board.profiles[wish.profile_id]
    if wish.start is not None and wish.start not in profile.starts:
        starts = ", ".join(str(s) for s in profile.starts)
        return Blocker(
            rule="PLACEMENT",
            message=f"{profile.name} cannot start at memory slice {wish.start} (it can at {starts})",
            gpu=gpu.pci,
            next_step=f"aliquot profiles {gpu.pci}",
        )
    if not compute.fits(profile, wish.compute, wish.compute_starts):
        placed = msgspec.structs.replace(profile, placed_compute=True)
        if compute.fits(placed, wish.compute, wish.compute_starts):
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
    board: Board,
    gpu: Gpu,
    wishes: Sequence[InstanceWish],
    asked: str,
    rule: str,
    why: str,
    where: tuple[int, ...] = (),
) -> Blocker:
    suggestion = _nearest(board, gpu, wishes)
    return Blocker(
        rule=rule,
        message=f"{gpu.product} cannot hold {asked}: {why}",
        gpu=gpu.pci,
        slices=where,
        suggestion=suggestion,
        next_step=f"aliquot plan --gpu {gpu.pci} --mig {suggestion}" if suggestion else f"aliquot profiles {gpu.pci}",
    )


def _nearest(board: Board, gpu: Gpu, wishes: Sequence[InstanceWish]) -> str | None:
    """The nearest wish that this GPU can have now, which destroys nothing that is held or that was asked for as well.
    None if it is what was asked, or only destroys where something new was asked for.
    """
    wanted = Counter(w.profile_id for w in wishes if w.profile_id in board.profiles)
    kept, left = [], wanted.copy()
    for each in sorted(gpu.instances, key=lambda i: not i.held):
        if each.held or left[each.profile_id] > 0:
            kept.append(each)
            left[each.profile_id] -= 1
    pinned: list[Placed] = [(i.profile_id, i.place.start) for i in kept]
    if not all(place in board.masks for place in pinned) or not all(_whole(board, i) for i in kept):
        return None  # profiles alone do not say what is there
    near = pack.nearest(board, wanted, pinned)
    there = Counter(i.profile_id for i in gpu.instances)
    if not near or near == wanted or (wanted - there and not near - there):
        return None
    return wish_text(board, near)


def _whole(board: Board, instance: GpuInstance) -> bool:
    """Whether it holds what its profile means by itself, or nothing yet."""
    inside = [c.profile_id for c in instance.compute_instances]
    return inside in ([], [board.profiles[instance.profile_id].default_compute.id])


def held(board: Board, gpu: Gpu, wishes: Sequence[InstanceWish], doomed: Sequence[GpuInstance]) -> Blocker:
    """The blocker for a wish that can only be met by destroying held instances."""
    mask = 0
    for instance in doomed:
        mask |= instance.place.mask
    names = ", ".join(f"{i.profile} at {i.placement}" for i in doomed)
    count = f"{len(doomed)} instance is held" if len(doomed) == 1 else f"{len(doomed)} instances are held"
    holders = tuple(h for i in doomed for h in i.holders)
    step = ways_out(holders)
    if holders and all(h.kind == "vgpu" for h in holders) and not any(v.held for v in gpu.vgpus):
        step = f"destroy the vGPUs, which nobody uses, then the same again: aliquot apply --gpu {gpu.pci} --vgpu none"
    return Blocker(
        rule="HELD",
        message=f"GPU {gpu.pci} cannot become {asked_text(board, wishes)}: {count} ({names})",
        gpu=gpu.pci,
        slices=slices(mask),
        holders=holders,
        suggestion=_nearest(board, gpu, wishes),
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
        next_step=ways_out(gpu.holders),
    )
