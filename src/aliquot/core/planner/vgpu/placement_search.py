"""Which vGPUs stay, which go, and in what order the missing ones are made so that the driver's own choice of place ends
in the complete set. The search is complete: what it destroys is provably the least.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

from aliquot.core.planner.vgpu.matching import Aim, Bucket, Here, Item, Partners
from aliquot.core.planner.vgpu.mixed_size import fill
from aliquot.core.planner.vgpu.placement_policies import MixedRoom, Room, Seat, Spot, State
from aliquot.core.planner.vgpu.rules import counted


def aim(room: Room, items: Sequence[Item], here: Sequence[Here]) -> Aim | None:
    """The end state that destroys the fewest vGPUs, held ones last. None if not even an empty room takes the items in
    any order.
    """
    if isinstance(room, MixedRoom):
        return fill(room, items, here)
    if order(room, room.start(()), items) is None:
        return None
    partners = Partners(items, places=False)
    failed: set[State] = set()
    for kept, missing in _choices(room, partners, here):
        state = room.start([Seat(h.type, h.spot) for h in kept if h.type is not None])
        # What is missing of each kind follows from what the room looks like to the driver.
        found = None if state in failed else order(room, state, missing)
        failed.add(state)
        if found is not None:
            stays = {id(h) for h in kept}
            return Aim(tuple(kept), tuple(h for h in here if id(h) not in stays), tuple(found))
    raise AssertionError("an empty room took the items before")


def order(room: Room, state: State, items: Sequence[Item]) -> list[tuple[Item, Spot]] | None:
    """An order in which the driver takes all items, each with the place that it gives; None if there is none.

    Items that the driver treats alike are interchangeable, so the search is over kinds: depth first, biggest first,
    states that have failed are not tried again.
    """
    kinds: dict[Hashable, list[Item]] = {}
    for item in sorted(items, key=lambda i: (i.type.id or 0, i.wish.function, i.wish.uuid)):
        kinds.setdefault(room.kind(item.type), []).append(item)
    groups = [kinds[key] for key in sorted(kinds, key=repr)]
    failed: set[tuple[State, tuple[int, ...]]] = set()

    def rest(state: State, left: tuple[int, ...]) -> list[tuple[Item, Spot]] | None:
        if not any(left):
            return []
        if (state, left) in failed:
            return None
        if not room.hopeless(state, [(g[0].type, n) for g, n in zip(groups, left, strict=True) if n]):
            for k, n in enumerate(left):
                item = groups[k][-n] if n else None
                taken = room.put(state, item.type) if item is not None else None
                if item is None or taken is None:
                    continue
                found = rest(taken[0], (*left[:k], n - 1, *left[k + 1 :]))
                if found is not None:
                    return [(item, taken[1]), *found]
        failed.add((state, left))
        return None

    return rest(state, tuple(len(g) for g in groups))


Group = tuple[Bucket, Spot, bool]
"""vGPUs that are alike: what they meet, where they are, whether they are held."""


def _choices(room: Room, partners: Partners, here: Sequence[Here]) -> Iterator[tuple[list[Here], list[Item]]]:
    """Every way to keep some of what is there, least destroyed first (held ones before all), with the items that are
    then missing. Ways that leave no place for what is missing in any case are left out.
    """
    groups: dict[Group, list[Here]] = {}
    for each in sorted(here, key=lambda h: -1 if h.spot is None else h.spot):
        groups.setdefault((partners.bucket(each), each.spot, each.vgpu.held), []).append(each)
    ways = _Ways(room, partners, groups)
    held = sum(len(m) for n, m in groups.items() if n[2])
    least = sum(partners.surplus(here).values())
    for held_gone in range(held + 1):
        for gone in range(max(least, held_gone), len(here) - held + held_gone + 1):
            for counts in ways.of(held_gone, gone):
                kept = [h for m, n in zip(groups.values(), counts, strict=True) for h in m[:n]]
                used: dict[Bucket, int] = {}
                for name, n in zip(groups, counts, strict=True):
                    used[name[0]] = used.get(name[0], 0) + n
                yield kept, [i for bucket, items in partners.items.items() for i in items[used.get(bucket, 0) :]]


class _Ways:
    """How many of each group to keep."""

    def __init__(self, room: Room, partners: Partners, groups: dict[Group, list[Here]]) -> None:
        self.room = room
        self.names, self.members = list(groups), list(groups.values())
        sizes = [len(m) for m in self.members]
        self.after = [sum(sizes[n:]) for n in range(len(sizes) + 1)]
        lent = [size if name[2] else 0 for name, size in zip(self.names, sizes, strict=True)]
        self.held_after = [sum(lent[n:]) for n in range(len(sizes) + 1)]
        self.wanted = {bucket: len(items) for bucket, items in partners.items.items()}
        self.missing = counted(i.type for i in partners.missing([h for m in self.members for h in m]))

    def of(self, held: int, gone: int) -> Iterator[tuple[int, ...]]:
        """The ways in which exactly ``held`` held ones and ``gone`` in all go."""
        yield from self._rest(0, held, gone, self.wanted, ())

    def _rest(
        self, n: int, held: int, gone: int, wanted: dict[Bucket, int], kept: tuple[Seat, ...]
    ) -> Iterator[tuple[int, ...]]:
        if held < 0 or gone < 0 or held > self.held_after[n] or gone > self.after[n]:
            return
        if n == len(self.names):
            yield ()
            return
        bucket, spot, lent = self.names[n]
        size = len(self.members[n])
        for keep in range(min(size, wanted.get(bucket, 0)), -1, -1):
            after = (*kept, *(Seat(h.type, spot) for h in self.members[n][:keep] if h.type is not None))
            if keep and self.missing and self.room.hopeless(self.room.start(after), self.missing):
                continue
            lost = size - keep
            left = {**wanted, bucket: wanted.get(bucket, 0) - keep}
            for tail in self._rest(n + 1, held - (lost if lent else 0), gone - lost, left, after):
                yield (keep, *tail)
