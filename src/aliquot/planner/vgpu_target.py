"""Which vGPUs stay, which go, and in what order the missing ones are made so that the driver's own choice of place ends
in the complete set. The search is complete: what it destroys is provably the least.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import NamedTuple

from aliquot.model.desired import VgpuWish
from aliquot.model.inventory import Vgpu
from aliquot.model.vgpu import VgpuType
from aliquot.planner.vgpu_rooms import MixedRoom, Room, Seat, Spot, State
from aliquot.planner.vgpu_rules import counted


class Item(NamedTuple):
    """One vGPU that is wanted."""

    wish: VgpuWish
    type: VgpuType


class Here(NamedTuple):
    """One vGPU that is there. ``type`` is None where the table does not have it, ``spot`` where nobody can tell."""

    vgpu: Vgpu
    type: VgpuType | None
    spot: Spot = None


class Aim(NamedTuple):
    """The end state for the vGPUs of one GPU. ``made`` is in the order of creation."""

    kept: tuple[Here, ...]
    doomed: tuple[Here, ...]
    made: tuple[tuple[Item, Spot], ...]

    @property
    def cost(self) -> tuple[int, int]:
        """(held vGPUs destroyed, vGPUs destroyed)."""
        return sum(h.vgpu.held for h in self.doomed), len(self.doomed)


def aim(room: Room, items: Sequence[Item], here: Sequence[Here]) -> Aim | None:
    """The end state that destroys the fewest vGPUs, held ones last. None if not even an empty room takes the items in
    any order.
    """
    if order(room, room.start(()), items) is None:
        return None
    partners = _Partners(items, isinstance(room, MixedRoom))
    for kept, missing in partners.choices(here, _fewest_lost(room, partners, here)):
        seats = [Seat(h.type, h.spot) for h in kept if h.type is not None]
        found = order(room, room.start(seats), missing)
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
        kinds.setdefault((room.kind(item.type), _place_asked(room, item)), []).append(item)
    groups = [kinds[key] for key in sorted(kinds, key=_sortable)]
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
                if item is None or taken is None or _place_asked(room, item) not in (None, taken[1]):
                    continue
                found = rest(taken[0], (*left[:k], n - 1, *left[k + 1 :]))
                if found is not None:
                    return [(item, taken[1]), *found]
        failed.add((state, left))
        return None

    return rest(state, tuple(len(g) for g in groups))


def _place_asked(room: Room, item: Item) -> int | None:
    return item.wish.placement if isinstance(room, MixedRoom) else None


def _sortable(key: Hashable) -> str:
    return repr(key)


Bucket = Hashable
"""What a wanted vGPU can be met by: one function, one UUID, one place, or any of a type."""


class _Partners:
    """Which present vGPU can meet which wish. A vGPU on a function (or with a UUID) that was asked for can only meet
    that wish; all others are met by any vGPU of their type.
    """

    def __init__(self, items: Sequence[Item], places: bool) -> None:
        self.places = places
        self.items: dict[Bucket, list[Item]] = {}
        self._pins: dict[tuple[str, str | int], Item] = {}
        for item in items:
            wish = item.wish
            pins: list[tuple[str, str | int]] = []
            pins += [("function", wish.function)] if wish.function else []
            pins += [("uuid", wish.uuid)] if wish.uuid else []
            pins += [("place", wish.placement)] if places and wish.placement is not None else []
            self._pins.update(dict.fromkeys(pins, item))
            self.items.setdefault(id(item) if pins else f"type {wish.type_id}", []).append(item)

    def bucket(self, here: Here) -> Bucket:
        """The bucket of a vGPU that is there, None if it meets no wish."""
        vgpu = here.vgpu
        place = -1 if here.spot is None else here.spot
        for key in (("function", vgpu.function), ("uuid", vgpu.uuid), ("place", place)):
            item = self._pins.get(key)
            if item is not None and (key[0] != "place" or item.wish.type_id == vgpu.type_id):
                return id(item) if self._meets(here, item.wish) else None
        return f"type {vgpu.type_id}" if f"type {vgpu.type_id}" in self.items else None

    def _meets(self, here: Here, wish: VgpuWish) -> bool:
        vgpu = here.vgpu
        return (
            vgpu.type_id == wish.type_id
            and wish.function in ("", vgpu.function)
            and (not wish.uuid or vgpu.uuid in ("", wish.uuid))
            and (not self.places or wish.placement in (None, here.spot))
        )

    def choices(self, here: Sequence[Here], least: int) -> Iterator[tuple[list[Here], list[Item]]]:
        """Every way to keep some of what is there, least destroyed first (held ones before all), with the items that
        are then missing. ``least`` is a bound below which nothing need be tried.
        """
        groups: dict[tuple[Bucket, Spot, bool], list[Here]] = {}
        for each in here:
            groups.setdefault((self.bucket(each), each.spot, each.vgpu.held), []).append(each)
        names, members = list(groups), list(groups.values())
        room = {bucket: len(items) for bucket, items in self.items.items()}
        held = sum(len(m) for n, m in groups.items() if n[2])
        for held_gone in range(held + 1):
            for gone in range(max(least, held_gone), len(here) - held + held_gone + 1):
                for counts in _ways(names, [len(m) for m in members], room, held_gone, gone):
                    kept = [h for m, n in zip(members, counts, strict=True) for h in m[:n]]
                    used: dict[Bucket, int] = {}
                    for name, n in zip(names, counts, strict=True):
                        used[name[0]] = used.get(name[0], 0) + n
                    yield kept, [i for bucket, items in self.items.items() for i in items[used.get(bucket, 0) :]]


def _ways(
    names: Sequence[tuple[Bucket, Spot, bool]], sizes: Sequence[int], room: dict[Bucket, int], held: int, gone: int
) -> Iterator[tuple[int, ...]]:
    """How many of each group to keep so that exactly ``held`` held ones and ``gone`` in all go."""
    after = [sum(sizes[n:]) for n in range(len(sizes) + 1)]
    held_after = [
        sum(s for name, s in zip(names[n:], sizes[n:], strict=True) if name[2]) for n in range(len(sizes) + 1)
    ]

    def rest(n: int, held: int, gone: int, room: dict[Bucket, int]) -> Iterator[tuple[int, ...]]:
        if held < 0 or gone < 0 or held > held_after[n] or gone > after[n]:
            return
        if n == len(sizes):
            yield ()
            return
        bucket = names[n][0]
        for keep in range(min(sizes[n], room.get(bucket, 0)), -1, -1):
            lost = sizes[n] - keep
            left = {**room, bucket: room.get(bucket, 0) - keep}
            for tail in rest(n + 1, held - (lost if names[n][2] else 0), gone - lost, left):
                yield (keep, *tail)

    yield from rest(0, held, gone, room)


def _fewest_lost(room: Room, partners: _Partners, here: Sequence[Here]) -> int:
    """A bound from below on how many vGPUs must go: the surplus of each wish, and in mixed-size mode what lies under
    the cheapest place of each type of which more is wanted than there is.
    """
    having: dict[Bucket, int] = {}
    for each in here:
        having[partners.bucket(each)] = having.get(partners.bucket(each), 0) + 1
    surplus = {b: max(0, n - len(partners.items.get(b, ()))) for b, n in having.items()}
    bound = sum(surplus.values())
    if not isinstance(room, MixedRoom):
        return bound
    short = [i.type for b, items in partners.items.items() for i in items[having.get(b, 0) :]]
    taken = [(partners.bucket(h), room.start([Seat(h.type, h.spot)])) for h in here if h.type and h.spot is not None]
    for kind, _ in counted(short):
        worst = []
        for _, mask in room.masks(kind):
            under: dict[Bucket, int] = {}
            for bucket, covered in taken:
                if covered & mask:
                    under[bucket] = under.get(bucket, 0) + 1
            worst.append(sum(max(0, n - surplus[b]) for b, n in under.items()))
        bound = max(bound, sum(surplus.values()) + min(worst, default=0))
    return bound
