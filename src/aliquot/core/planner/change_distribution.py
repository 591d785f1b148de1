"""Distribution of a change over several GPUs, so that the least is destroyed in total.

The search is complete. Per GPU it finds the best end state for each share of the request that the GPU can take. Over
the GPUs it searches by what they take together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import msgspec

from aliquot.core.model.desired import DesiredGpu, DesiredInstance
from aliquot.core.model.inventory import Gpu
from aliquot.core.planner.geometry_change import ChangedGpu, change_gpu
from aliquot.core.planner.placement_search import Cost
from aliquot.core.planner.placement_table import PlacementTable
from aliquot.core.planner.share_search import Share, cheapest_shares

_Choice = TypeVar("_Choice")


class ChangeCandidate(msgspec.Struct, frozen=True):
    """A GPU that may be changed.

    ``add`` and ``remove`` have an entry for each requested kind, None if the GPU does not have this kind.
    """

    gpu: Gpu
    table: PlacementTable
    add: tuple[DesiredInstance | None, ...]
    remove: tuple[DesiredInstance | None, ...] = ()


def distribute_change(
    candidates: Sequence[ChangeCandidate], add: Share, remove: Share, *, replacing: bool = False
) -> tuple[DesiredGpu, ...] | None:
    """Return the desired state of the GPUs that change: ``add`` more and ``remove`` fewer of each kind in total.

    None if that is impossible. If ``replacing``, only what is added exists afterwards.
    """
    known: dict[object, dict[Share, ChangedGpu]] = {}
    options = []
    for candidate in candidates:
        key = _key(candidate)
        if key not in known:
            known[key] = dict(_shares(candidate, add, remove, replacing))
        options.append({share: (_less_added(each.cost, share[: len(add)]), each) for share, each in known[key].items()})
    weights = [(*each, *(0 for _ in remove)) for each in zip(*kind_sizes(candidates), strict=True)]
    weights += [(*(0 for _ in add), *(1 for _ in remove))] if any(remove) else []
    found = cheapest_shares(options, (*add, *remove), weights)
    if found is None:
        return None
    pairs = zip(candidates, found, strict=True)
    return tuple(msgspec.structs.replace(each.desired, pci=c.gpu.pci) for c, each in pairs if each.desired)


def _less_added(cost: Cost, added: Share) -> Cost:
    """Return a cost without the instances that are created in every distribution, so that bounds are closer."""
    return *cost[:5], cost[5] - sum(added), *cost[6:]


def kind_sizes(candidates: Sequence[ChangeCandidate]) -> list[Share]:
    """Return the sizes of one instance of each kind to add: compute slices, memory slices, their sum, and 1."""
    sizes: list[Share] = []
    for kinds in zip(*(candidate.add for candidate in candidates), strict=True):
        table, kind = next((c.table, kind) for c, kind in zip(candidates, kinds, strict=True) if kind is not None)
        profile = table.profiles[kind.profile_id]
        parts = [profile.compute_profile(part) for part in kind.compute]
        slices = sum(part.compute_slices for part in parts if part)
        sizes.append((slices, profile.size, slices + profile.size, 1))
    return sizes


def grown_shares(need: Share, fits: Callable[[Share], _Choice | None]) -> Iterator[tuple[Share, _Choice]]:
    """Yield every share of ``need`` that fits, with the result of ``fits``.

    A share below one that fits must fit, too.
    """
    frontier = [(tuple(0 for _ in need), 0)]
    while frontier:
        share, first = frontier.pop()
        choice = fits(share)
        if choice is None:
            continue
        yield share, choice
        for n in range(first, len(need)):
            if share[n] < need[n]:
                frontier.append(((*share[:n], share[n] + 1, *share[n + 1 :]), n))


def _shares(
    candidate: ChangeCandidate, add: Share, remove: Share, replacing: bool
) -> Iterator[tuple[Share, ChangedGpu]]:
    """Yield the shares that a GPU can take, with its best end state for each."""

    def changed(added: Share, removed: Share) -> ChangedGpu | None:
        more, fewer = picked(candidate.add, added), picked(candidate.remove, removed)
        if more is None or fewer is None:
            return None
        return change_gpu(candidate.table, candidate.gpu, more, fewer, replacing=replacing)

    nothing = tuple(0 for _ in add)
    for removed, _ in grown_shares(remove, lambda fewer: changed(nothing, fewer)):
        for added, found in grown_shares(add, lambda more, fewer=removed: changed(more, fewer)):  # type: ignore[misc]
            yield (*added, *removed), found


def picked(kinds: Sequence[DesiredInstance | None], share: Share) -> list[DesiredInstance] | None:
    """Return the given number of instances of each kind. None if one of the kinds does not exist on this GPU."""
    out: list[DesiredInstance] = []
    for kind, n in zip(kinds, share, strict=True):
        if n and kind is None:
            return None
        out += [kind] * n if kind else []
    return out


def _key(candidate: ChangeCandidate) -> object:
    """Return a key that is equal for GPUs that change in the same way."""
    gpu = candidate.gpu
    instances = tuple(
        (
            i.profile_id,
            i.placement,
            i.held,
            tuple((c.profile_id, c.placement, bool(c.holders)) for c in i.compute_instances),
        )
        for i in gpu.instances
    )
    whole = gpu.mig, bool(gpu.holders), gpu.passthrough, bool(gpu.vgpus), gpu.slots_mirrored
    return candidate.table.family.name, candidate.add, candidate.remove, instances, whole
