"""Distribution of a change over several GPUs, so that the least is destroyed in total.

The search is complete. Per GPU it finds the best end state for each share of the request that the GPU can take. Over
the GPUs it searches by what they take together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import msgspec

from aliquot.core.model.desired import DesiredGpu, DesiredInstance
from aliquot.core.model.inventory import Gpu
from aliquot.core.planner.geometry_change import UNCHANGED, ChangedGpu, change_gpu, present_headroom, total_cost
from aliquot.core.planner.placed_states import WholeInstances, has_whole_instances, is_whole, packed_count
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
    options = change_options(candidates, add, remove, replacing=replacing)
    found = cheapest_shares(options, (*add, *remove), change_weights(candidates, remove))
    if found is None:
        return None
    changed = []
    for candidate, share in zip(candidates, found, strict=True):
        best = _changed(candidate, share[: len(add)], share[len(add) :], replacing)
        if best is not None and best.desired is not None:
            changed.append(best.desired)
    return tuple(changed)


def change_options(
    candidates: Sequence[ChangeCandidate], add: Share, remove: Share, *, replacing: bool
) -> list[dict[Share, tuple[Cost, Share]]]:
    """Return the shares that each GPU can take, with the cost of each and the share again.

    A cost does not count the instances that are created in every distribution, so that the bounds are closer.
    """
    known: dict[object, dict[Share, tuple[Cost, Share]]] = {}
    options = []
    for candidate in candidates:
        key = _key(candidate)
        if key not in known:
            known[key] = {
                (*added, *removed): ((*cost[:5], cost[5] - sum(added), *cost[6:]), (*added, *removed))
                for added, removed, cost in _shares(candidate, add, remove, replacing)
            }
        options.append(known[key])
    return options


def change_weights(candidates: Sequence[ChangeCandidate], remove: Share) -> list[Share]:
    """Return the sizes of each kind, those to add first. What is removed has none."""
    return [(*each, *(0 for _ in remove)) for each in zip(*kind_sizes(candidates), strict=True)]


def kind_sizes(candidates: Sequence[ChangeCandidate]) -> list[Share]:
    """Return the size of one instance of each kind to add: compute slices and memory slices."""
    sizes: list[Share] = []
    for kinds in zip(*(candidate.add for candidate in candidates), strict=True):
        table, kind = next((c.table, kind) for c, kind in zip(candidates, kinds, strict=True) if kind is not None)
        profile = table.profiles[kind.profile_id]
        parts = [profile.compute_profile(part) for part in kind.compute]
        sizes.append((sum(part.compute_slices for part in parts if part), profile.size))
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
) -> Iterator[tuple[Share, Share, Cost]]:
    """Yield the shares that a GPU can take, as what is added and removed, with the cost of its best end state."""
    whole = WholeChange(candidate, replacing) if WholeChange.is_possible(candidate) else None

    def cost(added: Share, removed: Share) -> Cost | None:
        if whole is not None:
            return whole.cost(added, removed)
        found = _changed(candidate, added, removed, replacing)
        return None if found is None else found.cost

    nothing = tuple(0 for _ in add)
    for removed, _ in grown_shares(remove, lambda fewer: cost(nothing, fewer)):
        for added, found in grown_shares(add, lambda more, fewer=removed: cost(more, fewer)):  # type: ignore[misc]
            yield added, removed, found


class WholeChange:
    """A change of a GPU with whole instances only. Its costs follow from the placed states of the geometries."""

    def __init__(self, candidate: ChangeCandidate, replacing: bool) -> None:
        table, self._gpu = candidate.table, candidate.gpu
        self._present = WholeInstances(table, candidate.gpu)
        self._headroom = present_headroom(table, candidate.gpu)
        self._replacing = replacing
        signs = [(1, kind) for kind in candidate.add] + [(-1, kind) for kind in candidate.remove]
        self._kinds = [(sign, sign * packed_count(table, kind.profile_id)) if kind else None for sign, kind in signs]
        present = Counter(instance.profile_id for instance in candidate.gpu.instances)
        self._removable = [present[kind.profile_id] if kind else 0 for kind in candidate.remove]

    @staticmethod
    def is_possible(candidate: ChangeCandidate) -> bool:
        """Report whether the GPU has, and the request names, whole instances at any placement only."""
        kinds = [kind for kind in (*candidate.add, *candidate.remove) if kind]
        distinct = len({kind.profile_id for kind in kinds}) == len(kinds)
        named = all(is_whole(candidate.table, kind) for kind in kinds)
        return distinct and named and has_whole_instances(candidate.table, candidate.gpu)

    def cost(self, added: Share, removed: Share) -> Cost | None:
        """Return the cost of the best end state, as ``change_gpu`` does. None if there is none."""
        share = *added, *removed
        if not any(share) and not (self._replacing and self._gpu.mig.enabled):
            return UNCHANGED
        if any(n > most for n, most in zip(removed, self._removable, strict=True)):
            return None
        geometry, count = (0, 0) if self._replacing else (self._present.geometry, len(self._gpu.instances))
        for n, kind in zip(share, self._kinds, strict=True):
            if n:
                if kind is None:
                    return None
                count, geometry = count + n * kind[0], geometry + n * kind[1]
        cost = self._present.cost(geometry, count)
        return None if cost is None else total_cost(self._gpu, cost, self._headroom)


def _changed(candidate: ChangeCandidate, added: Share, removed: Share, replacing: bool) -> ChangedGpu | None:
    more, fewer = picked(candidate.add, added), picked(candidate.remove, removed)
    if more is None or fewer is None:
        return None
    return change_gpu(candidate.table, candidate.gpu, more, fewer, replacing=replacing)


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
