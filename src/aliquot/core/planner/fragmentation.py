"""What is free on a GPU, what of it nothing wanted can use, and what a better arrangement would give."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from weakref import WeakKeyDictionary

import msgspec

from aliquot.core.model.inventory import Gpu, Inventory
from aliquot.core.model.placement import slices
from aliquot.core.planner import placement_search as pack
from aliquot.core.planner.placement_table import Board, Placed, board
from aliquot.core.planner.rules import allowed
from aliquot.core.planner.target_state import key


class Room(msgspec.Struct, frozen=True):
    """How many more instances of one profile a GPU takes. ``now``: beside everything that is there; ``repacked``: if
    idle instances moved, none of them given up and held ones where they are. ``starts`` are the first memory slices at
    which one more is legal now.
    """

    profile: str
    profile_id: int
    now: int
    repacked: int
    starts: tuple[int, ...] = ()

    @property
    def lost(self) -> int:
        """Instances that only the arrangement stands in the way of."""
        return self.repacked - self.now


class Holes(msgspec.Struct, frozen=True):
    """One GPU in MIG mode. ``free`` are the memory slices that no instance covers, ``stranded`` those of them that no
    wanted profile can use as things lie. ``rooms`` has a row for every profile, in the order of the family's table.
    """

    gpu: str
    free: tuple[int, ...]
    stranded: tuple[int, ...]
    rooms: tuple[Room, ...]

    @property
    def lost(self) -> tuple[Room, ...]:
        """Profiles of which moving idle instances would give more."""
        return tuple(room for room in self.rooms if room.lost)


def holes(inventory: Inventory, gpu: Gpu, wanted: Collection[str] | None = None) -> Holes | None:
    """None for a GPU that is not in MIG mode. ``wanted`` are profile names; None, or none that this GPU has, means
    every profile of the table.
    """
    if gpu.lost or not gpu.mig.enabled or gpu.family is None:
        return None
    b = board(inventory.family(gpu))
    placed = tuple(k for k in map(key, gpu.instances) if k in b.masks)
    held = tuple(k for k, i in ((key(i), i) for i in gpu.instances) if i.held and k in b.masks)
    free, rooms, reach = _look(b, tuple(sorted(placed)), tuple(sorted(held)))
    names = {p.name: p.id for p in b.family.profiles}
    asked = {names[name] for name in wanted or () if name in names} or set(names.values())
    reachable = 0
    for profile_id in asked:
        reachable |= reach[profile_id]
    return Holes(gpu.pci, slices(free), slices(free & ~reachable), rooms)


_Seen = tuple[int, tuple[Room, ...], dict[int, int]]
_Places = tuple[tuple[Placed, ...], tuple[Placed, ...]]
_seen: WeakKeyDictionary[Board, dict[_Places, _Seen]] = WeakKeyDictionary()
_MOST = 4096


def _look(b: Board, placed: tuple[Placed, ...], held: tuple[Placed, ...]) -> _Seen:
    """Free slices, rooms, and the free slices that each profile reaches. Remembered: GPUs of a fleet look alike."""
    seen = _seen.setdefault(b, {})
    found = seen.get((placed, held))
    if found is None:
        if len(seen) >= _MOST:
            seen.clear()
        found = seen[placed, held] = _looked(b, placed, held)
    return found


def _looked(b: Board, placed: tuple[Placed, ...], held: tuple[Placed, ...]) -> _Seen:
    free = ((1 << b.family.memory_slices) - 1) & ~b.mask(placed)
    rooms, reach = [], {}
    for profile in b.family.profiles:
        starts = pack.fits_beside(b, placed, profile.id)
        reach[profile.id] = 0
        for start in starts:
            reach[profile.id] |= b.masks[profile.id, start]
        now = _more(b, placed, profile.id, placed) if starts else 0
        rooms.append(Room(profile.name, profile.id, now, max(now, _more(b, placed, profile.id, held)), tuple(starts)))
    return free, tuple(rooms), reach


def _more(b: Board, placed: tuple[Placed, ...], profile_id: int, fixed: tuple[Placed, ...]) -> int:
    """How many more of a profile there can be, beside as many of each as there are, those in ``fixed`` unmoved."""
    counts = Counter(p for p, _ in placed)
    more = 0
    while True:
        counts[profile_id] += 1
        if not allowed(b, counts) or next(pack.arrangements(b, counts, fixed), None) is None:
            return more
        more += 1
