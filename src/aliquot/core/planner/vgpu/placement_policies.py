"""The driver's handling of one new vGPU: whether it accepts the vGPU, and where it places it.

There is one policy per way of sharing a GPU: equal-size (``EqualSizePolicy``), mixed-size (``MixedSizePolicy``) and
inside GPU instances (``MigBackedPolicy``). A policy does not know virtual functions and holders. The driver accepts no
placement in a request but takes the first free one, so the order of creations decides the placements.

Source: open GPU kernel modules 595, ``kernel_vgpu_mgr.c`` (a placement search in table order, the lowest GPU instance
id that passes).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from aliquot.core.model.vgpu_types import VgpuTable, VgpuType

MOST_TIME_SLICED, MOST_WITH_MIG = 32, 48
"""Maximum of vGPUs on one GPU, of any types (open GPU kernel modules 595)."""

State = Any
"""The state of a GPU for a policy: hashable, and equal if the driver would act equally."""
VgpuPlacement = int | None
"""Placement id in mixed-size mode, or id of the GPU instance. None if neither applies."""


Types = Sequence[tuple[VgpuType, int]]
"""vGPU types, each once, with their numbers."""


class PlacedVgpu(NamedTuple):
    """A vGPU with its placement."""

    type: VgpuType
    placement: VgpuPlacement
    inside: int | None = None
    """Placement id in its GPU instance in mixed-size mode."""


class PlacementPolicy(Protocol):
    """A way of sharing a GPU."""

    def initial_state(self, placed: Iterable[PlacedVgpu]) -> State:
        """Return the state with these vGPUs."""
        ...

    def place(self, state: State, vgpu_type: VgpuType) -> tuple[State, VgpuPlacement] | None:
        """Return the state with one more vGPU, and its placement. None if the driver refuses it."""
        ...

    def kind(self, vgpu_type: VgpuType) -> Hashable:
        """Return a key that is equal for types that the driver treats alike."""
        ...

    def cannot_fit(self, state: State, remaining: Types) -> bool:
        """Report whether these vGPUs are known not to fit in any order. False means unknown."""
        ...


class EqualSizePolicy:
    """Every vGPU has the same size. The maximum of a type applies to all vGPUs of the GPU."""

    def initial_state(self, placed: Iterable[PlacedVgpu]) -> State:
        types = [vgpu.type for vgpu in placed]
        return len(types), types[0].fb_mib if types else 0

    def place(self, state: State, vgpu_type: VgpuType) -> tuple[State, VgpuPlacement] | None:
        count, size = state
        if count >= min(vgpu_type.max, MOST_TIME_SLICED) or (count and size != vgpu_type.fb_mib):
            return None
        return (count + 1, vgpu_type.fb_mib), None

    def kind(self, vgpu_type: VgpuType) -> Hashable:
        return -vgpu_type.fb_mib, vgpu_type.max

    def cannot_fit(self, state: State, remaining: Types) -> bool:
        sizes = {vgpu_type.fb_mib for vgpu_type, _ in remaining} | ({state[1]} if state[0] else set())
        return len(sizes) > 1 or any(state[0] + n > vgpu_type.max for vgpu_type, n in remaining)


class MixedSizePolicy:
    """Each size has its placements. The driver takes the first free one, and ignores the maximum of a type."""

    def __init__(self, table: VgpuTable) -> None:
        self.table = table
        self.region = table.region
        """GiB in which vGPUs are placed."""
        self._masks: dict[Hashable, tuple[tuple[int, int], ...]] = {}

    def size(self, vgpu_type: VgpuType) -> int:
        """Return the GiB that a vGPU takes: its profile size, but 2 GiB count as 3 on boards of 96 GiB."""
        rounded = -(-vgpu_type.fb_mib // 1024)
        return 3 if self.table.region == 96 and rounded == 2 else rounded

    def masks(self, vgpu_type: VgpuType) -> tuple[tuple[int, int], ...]:
        """Return (placement id, GiB that it covers as bits) in the order in which the driver tries them."""
        key = self.kind(vgpu_type)
        if key not in self._masks:
            covered = (1 << self.size(vgpu_type)) - 1
            self._masks[key] = tuple((place, covered << place) for place in self.places(vgpu_type))
        return self._masks[key]

    def places(self, vgpu_type: VgpuType) -> tuple[int, ...]:
        """Return the placement ids of a type in the order in which the driver tries them."""
        return vgpu_type.mixed

    def initial_state(self, placed: Iterable[PlacedVgpu]) -> State:
        """Return the state. A vGPU with an unknown placement is assumed at the first free one."""
        taken, unknown = 0, []
        for vgpu in placed:
            if vgpu.placement is None:
                unknown.append(vgpu.type)
            else:
                taken |= ((1 << self.size(vgpu.type)) - 1) << vgpu.placement
        for vgpu_type in unknown:
            found = self.place(taken, vgpu_type)
            taken = found[0] if found else taken
        return taken

    def place(self, state: State, vgpu_type: VgpuType) -> tuple[State, VgpuPlacement] | None:
        return next(((state | mask, place) for place, mask in self.masks(vgpu_type) if not mask & state), None)

    def kind(self, vgpu_type: VgpuType) -> Hashable:
        return -vgpu_type.fb_mib, vgpu_type.mixed

    def cannot_fit(self, state: State, remaining: Types) -> bool:
        counts: dict[Hashable, int] = {}
        kinds = {self.kind(vgpu_type): vgpu_type for vgpu_type, _ in remaining}
        for vgpu_type, n in remaining:
            counts[self.kind(vgpu_type)] = counts.get(self.kind(vgpu_type), 0) + n
        if sum(self.size(kinds[kind]) * n for kind, n in counts.items()) > self.region - state.bit_count():
            return True
        return any(sum(not m & state for _, m in self.masks(kinds[k])) < n for k, n in counts.items())


class MigBackedPolicy:
    """Every vGPU is inside a GPU instance of its profile.

    The driver takes the lowest GPU instance id that has vGPUs of the same size or none, and fewer than the type allows.
    ``instances`` are (id, profile id).
    """

    def __init__(self, table: VgpuTable, instances: Sequence[tuple[int, int]], profiles: Mapping[str, int]) -> None:
        self.table = table
        self.instances = tuple(sorted(instances))
        self._profiles = profiles

    def profile(self, vgpu_type: VgpuType) -> int | None:
        """Return the profile id of the GPU instance that a type needs, by name if the number is unknown."""
        return profile_of(vgpu_type, self._profiles)

    def initial_state(self, placed: Iterable[PlacedVgpu]) -> State:
        inside: dict[int, tuple[int, int]] = {}
        for vgpu in placed:
            if vgpu.placement is not None:
                inside[vgpu.placement] = (vgpu.type.fb_mib, inside.get(vgpu.placement, (0, 0))[1] + 1)
        return tuple(inside.get(number, (0, 0)) for number, _ in self.instances)

    def place(self, state: State, vgpu_type: VgpuType) -> tuple[State, VgpuPlacement] | None:
        if not vgpu_type.mig_backed or sum(count for _, count in state) >= MOST_WITH_MIG:
            return None
        profile = self.profile(vgpu_type)
        for n, ((number, having), (size, count)) in enumerate(zip(self.instances, state, strict=True)):
            if having == profile and (not count or size == vgpu_type.fb_mib) and count < vgpu_type.per_instance:
                return (*state[:n], (vgpu_type.fb_mib, count + 1), *state[n + 1 :]), number
        return None

    def kind(self, vgpu_type: VgpuType) -> Hashable:
        return self.profile(vgpu_type) or 0, -vgpu_type.fb_mib, vgpu_type.per_instance

    def cannot_fit(self, state: State, remaining: Types) -> bool:
        """Report whether a size lacks space in instances of its profile. Sizes do not share instances."""
        wanted: dict[tuple[int | None, int, int], int] = {}
        for vgpu_type, n in remaining:
            key = self.profile(vgpu_type), vgpu_type.fb_mib, vgpu_type.per_instance
            wanted[key] = wanted.get(key, 0) + n
        for (profile, size, most), n in wanted.items():
            occupancy = zip(self.instances, state, strict=True)
            free = sum(most - c for (_, p), (s, c) in occupancy if p == profile and (not c or s == size))
            if free < n:
                return True
        return False


def profile_of(vgpu_type: VgpuType, profiles: Mapping[str, int]) -> int | None:
    """Return the GPU instance profile of a MIG-backed type, by its number, else by its name among ``profiles``."""
    return vgpu_type.profile_id if vgpu_type.profile_id is not None else profiles.get(vgpu_type.profile)
