"""Search for the vGPUs that stay and the order in which the missing ones are created.

The order is such that the driver's own placements lead to the complete set. The search is complete: what it destroys is
provably the least.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

from aliquot.core.planner.vgpu.matching import MatchKey, PresentVgpu, VgpuMatches, VgpuTarget, WantedVgpu
from aliquot.core.planner.vgpu.mixed_instances import MixedInstancePolicy
from aliquot.core.planner.vgpu.mixed_size import find_mixed_size_target
from aliquot.core.planner.vgpu.placement_policies import (
    MixedSizePolicy,
    PlacedVgpu,
    PlacementPolicy,
    State,
    VgpuPlacement,
)
from aliquot.core.planner.vgpu.rules import count_types


def find_vgpu_target(
    policy: PlacementPolicy, items: Sequence[WantedVgpu], present: Sequence[PresentVgpu]
) -> VgpuTarget | None:
    """Return the target that destroys the fewest vGPUs, held ones last.

    None if not even an empty GPU takes the items in any order.
    """
    if isinstance(policy, MixedSizePolicy):
        return find_mixed_size_target(policy, items, present)
    if isinstance(policy, MixedInstancePolicy):
        return policy.find_target(items, present)
    if find_order(policy, policy.initial_state(()), items) is None:
        return None
    matches = VgpuMatches(items, False, present)
    failed: set[State] = set()
    for retained, missing in _choices(policy, matches, present):
        state = policy.initial_state(
            [PlacedVgpu(h.type, h.placement, h.vgpu.placement) for h in retained if h.type is not None]
        )
        # The state determines what is missing of each kind.
        found = None if state in failed else find_order(policy, state, missing)
        failed.add(state)
        if found is not None:
            stays = {h.vgpu.key for h in retained}
            return VgpuTarget(tuple(retained), tuple(h for h in present if h.vgpu.key not in stays), tuple(found))
    raise AssertionError("an empty GPU takes the items")


def find_order(
    policy: PlacementPolicy, state: State, items: Sequence[WantedVgpu]
) -> list[tuple[WantedVgpu, VgpuPlacement]] | None:
    """Return an order in which the driver takes all items, each with its placement. None if there is none.

    Items that the driver treats alike are interchangeable, so the search is over kinds. It is depth first, largest
    first, and does not try failed states again.
    """
    kinds: dict[Hashable, list[WantedVgpu]] = {}
    for item in sorted(items, key=lambda i: (i.type.id or 0, i.request.function, i.request.uuid)):
        kinds.setdefault(policy.kind(item.type), []).append(item)
    groups = [kinds[key] for key in sorted(kinds, key=repr)]
    failed: set[tuple[State, tuple[int, ...]]] = set()

    def rest(state: State, left: tuple[int, ...]) -> list[tuple[WantedVgpu, VgpuPlacement]] | None:
        if not any(left):
            return []
        if (state, left) in failed:
            return None
        if not policy.cannot_fit(state, [(g[0].type, n) for g, n in zip(groups, left, strict=True) if n]):
            for k, n in enumerate(left):
                item = groups[k][-n] if n else None
                taken = policy.place(state, item.type) if item is not None else None
                if item is None or taken is None:
                    continue
                found = rest(taken[0], (*left[:k], n - 1, *left[k + 1 :]))
                if found is not None:
                    return [(item, taken[1]), *found]
        failed.add((state, left))
        return None

    return rest(state, tuple(len(g) for g in groups))


Group = tuple[MatchKey, VgpuPlacement, bool, int | None]
"""vGPUs that are alike: match key, placement, whether they are held, placement in the GPU instance."""


def _choices(
    policy: PlacementPolicy, matches: VgpuMatches, present: Sequence[PresentVgpu]
) -> Iterator[tuple[list[PresentVgpu], list[WantedVgpu]]]:
    """Yield every way to retain some of the present vGPUs, with the items that are then missing.

    The least destroyed comes first (held ones before all). Ways that cannot fit the missing items are left out.
    """
    groups: dict[Group, list[PresentVgpu]] = {}
    for each in sorted(present, key=lambda h: -1 if h.placement is None else h.placement):
        key = matches.match_key(each), each.placement, each.vgpu.held, each.vgpu.placement
        groups.setdefault(key, []).append(each)
    options = _RetainOptions(policy, matches, groups)
    held = sum(len(m) for n, m in groups.items() if n[2])
    least = sum(matches.surplus(present).values())
    for held_gone in range(held + 1):
        for gone in range(max(least, held_gone), len(present) - held + held_gone + 1):
            for counts in options.counts(held_gone, gone):
                retained = [h for m, n in zip(groups.values(), counts, strict=True) for h in m[:n]]
                used: dict[MatchKey, int] = {}
                for name, n in zip(groups, counts, strict=True):
                    used[name[0]] = used.get(name[0], 0) + n
                yield (
                    retained,
                    [i for match_key, items in matches.items.items() for i in items[used.get(match_key, 0) :]],
                )


class _RetainOptions:
    """The possible numbers of vGPUs to retain of each group."""

    def __init__(self, policy: PlacementPolicy, matches: VgpuMatches, groups: dict[Group, list[PresentVgpu]]) -> None:
        self.policy = policy
        self.names, self.members = list(groups), list(groups.values())
        sizes = [len(m) for m in self.members]
        self.after = [sum(sizes[n:]) for n in range(len(sizes) + 1)]
        held_sizes = [size if name[2] else 0 for name, size in zip(self.names, sizes, strict=True)]
        self.held_after = [sum(held_sizes[n:]) for n in range(len(sizes) + 1)]
        self.wanted = {match_key: len(items) for match_key, items in matches.items.items()}
        self.missing = count_types(i.type for i in matches.missing([h for m in self.members for h in m]))

    def counts(self, held: int, gone: int) -> Iterator[tuple[int, ...]]:
        """Yield the ways in which exactly ``held`` held vGPUs, and ``gone`` in total, are destroyed."""
        yield from self._remaining_counts(0, held, gone, self.wanted, ())

    def _remaining_counts(
        self, index: int, held: int, gone: int, wanted: dict[MatchKey, int], retained: tuple[PlacedVgpu, ...]
    ) -> Iterator[tuple[int, ...]]:
        if held < 0 or gone < 0 or held > self.held_after[index] or gone > self.after[index]:
            return
        if index == len(self.names):
            yield ()
            return
        match_key, placement, is_held, inside = self.names[index]
        size = len(self.members[index])
        for keep in range(min(size, wanted.get(match_key, 0)), -1, -1):
            after = (
                *retained,
                *(PlacedVgpu(h.type, placement, inside) for h in self.members[index][:keep] if h.type is not None),
            )
            if keep and self.missing and self.policy.cannot_fit(self.policy.initial_state(after), self.missing):
                continue
            lost = size - keep
            left = {**wanted, match_key: wanted.get(match_key, 0) - keep}
            for tail in self._remaining_counts(index + 1, held - (lost if is_held else 0), gone - lost, left, after):
                yield (keep, *tail)
