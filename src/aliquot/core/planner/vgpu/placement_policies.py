"""What the driver does with one vGPU: whether it takes it beside what is there, and where it puts it.

Three rooms, one per way of sharing a GPU: equal-size (``EqualRoom``), mixed-size (``MixedRoom``), inside GPU instances
(``MigRoom``). A room knows nothing of virtual functions and holders. Nobody can ask the driver for a place: it takes
the first one that is free, so that the order of creations decides where vGPUs end (open GPU kernel modules 595,
``kernel_vgpu_mgr.c``: a placement search in table order, the lowest GPU instance id that passes).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from aliquot.core.model.vgpu_types import VgpuTable, VgpuType

MOST_TIME_SLICED, MOST_WITH_MIG = 32, 48
"""vGPUs on one GPU, whatever their types (open GPU kernel modules 595)."""

State = Any
"""What a room looks like to the driver: hashable, and equal where the driver would act equally."""
Spot = int | None
"""Where a vGPU is: its placement id in mixed-size mode, the id of its GPU instance, None where there is no choice."""


Types = Sequence[tuple[VgpuType, int]]
"""vGPU types, each once, and how many of it."""


class Seat(NamedTuple):
    """A vGPU that is in a room."""

    type: VgpuType
    spot: Spot


class Room(Protocol):
    """One way of sharing a GPU."""

    def start(self, seats: Iterable[Seat]) -> State:
        """The room with these vGPUs in it."""
        ...

    def put(self, state: State, each: VgpuType) -> tuple[State, Spot] | None:
        """What one more vGPU makes of the room and where the driver puts it; None where the driver refuses it."""
        ...

    def kind(self, each: VgpuType) -> Hashable:
        """Equal for types that the driver treats alike here."""
        ...

    def hopeless(self, state: State, todo: Types) -> bool:
        """True where these can be seen not to fit, in whatever order. False says nothing."""
        ...


class EqualRoom:
    """Every vGPU has the same size; the most of a type counts those of its whole GPU."""

    def start(self, seats: Iterable[Seat]) -> State:
        types = [seat.type for seat in seats]
        return len(types), types[0].fb_mib if types else 0

    def put(self, state: State, each: VgpuType) -> tuple[State, Spot] | None:
        count, size = state
        if count >= min(each.max, MOST_TIME_SLICED) or (count and size != each.fb_mib):
            return None
        return (count + 1, each.fb_mib), None

    def kind(self, each: VgpuType) -> Hashable:
        return -each.fb_mib, each.max

    def hopeless(self, state: State, todo: Types) -> bool:
        sizes = {each.fb_mib for each, _ in todo} | ({state[1]} if state[0] else set())
        return len(sizes) > 1 or any(state[0] + n > each.max for each, n in todo)


class MixedRoom:
    """Each size has its places; the driver takes the first free one, and does not look at the most of a type."""

    def __init__(self, table: VgpuTable) -> None:
        self.table = table
        self._masks: dict[tuple[tuple[int, ...], int], tuple[tuple[int, int], ...]] = {}

    def size(self, each: VgpuType) -> int:
        """GiB that a vGPU takes: its profile size, but 2 GiB count 3 on boards of 96 GiB."""
        rounded = -(-each.fb_mib // 1024)
        return 3 if self.table.region == 96 and rounded == 2 else rounded

    def masks(self, each: VgpuType) -> tuple[tuple[int, int], ...]:
        """(placement id, GiB that it covers as bits) in the order in which the driver tries them."""
        key = each.mixed, each.fb_mib
        if key not in self._masks:
            covered = (1 << self.size(each)) - 1
            self._masks[key] = tuple((place, covered << place) for place in each.mixed)
        return self._masks[key]

    def start(self, seats: Iterable[Seat]) -> State:
        """A vGPU whose place nobody knows is taken to lie at the first one that is free beside the others."""
        taken, unknown = 0, []
        for seat in seats:
            if seat.spot is None:
                unknown.append(seat.type)
            else:
                taken |= ((1 << self.size(seat.type)) - 1) << seat.spot
        for each in unknown:
            found = self.put(taken, each)
            taken = found[0] if found else taken
        return taken

    def put(self, state: State, each: VgpuType) -> tuple[State, Spot] | None:
        return next(((state | mask, place) for place, mask in self.masks(each) if not mask & state), None)

    def kind(self, each: VgpuType) -> Hashable:
        return -each.fb_mib, each.mixed

    def hopeless(self, state: State, todo: Types) -> bool:
        counts: dict[Hashable, int] = {}
        kinds = {self.kind(each): each for each, _ in todo}
        for each, n in todo:
            counts[self.kind(each)] = counts.get(self.kind(each), 0) + n
        if sum(self.size(kinds[kind]) * n for kind, n in counts.items()) > self.table.region - state.bit_count():
            return True
        return any(sum(not m & state for _, m in self.masks(kinds[k])) < n for k, n in counts.items())


class MigRoom:
    """Every vGPU is inside a GPU instance of its profile: the one with the lowest id that takes it, which has vGPUs of
    the same size or none, and fewer than the type allows in one. ``instances`` are (id, profile id).
    """

    def __init__(self, table: VgpuTable, instances: Sequence[tuple[int, int]], profiles: Mapping[str, int]) -> None:
        self.table = table
        self.instances = tuple(sorted(instances))
        self._profiles = profiles

    def profile(self, each: VgpuType) -> int | None:
        """The profile id of the GPU instance that a type needs; by name where the number is not known."""
        return profile_of(each, self._profiles)

    def start(self, seats: Iterable[Seat]) -> State:
        inside: dict[int, tuple[int, int]] = {}
        for seat in seats:
            if seat.spot is not None:
                inside[seat.spot] = (seat.type.fb_mib, inside.get(seat.spot, (0, 0))[1] + 1)
        return tuple(inside.get(number, (0, 0)) for number, _ in self.instances)

    def put(self, state: State, each: VgpuType) -> tuple[State, Spot] | None:
        if not each.mig_backed or sum(count for _, count in state) >= MOST_WITH_MIG:
            return None
        profile = self.profile(each)
        for n, ((number, having), (size, count)) in enumerate(zip(self.instances, state, strict=True)):
            if having == profile and (not count or size == each.fb_mib) and count < each.per_instance:
                return (*state[:n], (each.fb_mib, count + 1), *state[n + 1 :]), number
        return None

    def kind(self, each: VgpuType) -> Hashable:
        return self.profile(each) or 0, -each.fb_mib, each.per_instance

    def hopeless(self, state: State, todo: Types) -> bool:
        """Each size needs room of its own in instances of its profile."""
        wanted: dict[tuple[int | None, int, int], int] = {}
        for each, n in todo:
            key = self.profile(each), each.fb_mib, each.per_instance
            wanted[key] = wanted.get(key, 0) + n
        for (profile, size, most), n in wanted.items():
            rooms = zip(self.instances, state, strict=True)
            free = sum(most - c for (_, p), (s, c) in rooms if p == profile and (not c or s == size))
            if free < n:
                return True
        return False


def profile_of(each: VgpuType, profiles: Mapping[str, int]) -> int | None:
    """The GPU instance profile of a MIG-backed type, by its number, else by its name among ``profiles``."""
    return each.profile_id if each.profile_id is not None else profiles.get(each.profile)
