"""Mixed-size mode inside GPU instances, on chips that share a GPU instance between vGPUs (RTX PRO Blackwell).

Source: NVML since R575 (``nvmlGpuInstanceSetVgpuHeterogeneousMode``), and open GPU kernel modules 595,
``kernel_vgpu_mgr.c``. The placements of a type divide its GPU instance, which is as large as its largest type. The
driver takes the lowest GPU instance id with a free placement, and in it the first one. So GPU instances in the order of
their ids are one region, in which the driver acts as on a GPU in mixed-size mode.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence

import msgspec

from aliquot.core.model.desired import DesiredVgpu
from aliquot.core.model.vgpu_types import VgpuTable, VgpuType
from aliquot.core.planner.vgpu.matching import PresentVgpu, VgpuTarget, WantedVgpu
from aliquot.core.planner.vgpu.mixed_size import find_mixed_size_target
from aliquot.core.planner.vgpu.placement_policies import (
    MigBackedPolicy,
    MixedSizePolicy,
    PlacedVgpu,
    PlacementPolicy,
    State,
    Types,
    VgpuPlacement,
    profile_of,
)

MOST_GIB = 288
"""No GPU has more memory. What needs more is refused, whatever the number of GPU instances."""


class InstanceRegion(MixedSizePolicy):
    """GPU instances in mixed-size mode as one region. The state is the GiB that are taken, as bits."""

    def __init__(self, table: VgpuTable, instances: Sequence[tuple[int, int]], profiles: Mapping[str, int]) -> None:
        super().__init__(table)
        self._instances = sorted(instances)
        self._profiles = profiles
        self._gib: dict[int | None, int] = {}
        for each in table.types:
            if each.mig_backed:
                profile = profile_of(each, profiles)
                self._gib[profile] = max(self._gib.get(profile, 0), each.size_gib)
        self.starts: dict[int, int] = {}
        """The first GiB of each GPU instance, by id."""
        self.owners: dict[int, int] = {}
        """The GPU instance of each GiB."""
        for number, profile in self._instances:
            self.starts[number] = len(self.owners)
            self.owners |= dict.fromkeys(range(len(self.owners), len(self.owners) + self._gib.get(profile, 0)), number)
        self.region = len(self.owners)

    def gib(self, vgpu_type: VgpuType) -> int:
        """Return the GiB of a GPU instance for a type."""
        return self._gib[profile_of(vgpu_type, self._profiles)]

    def size(self, vgpu_type: VgpuType) -> int:
        """Return the GiB that a vGPU takes: its profile size, or its part of the instance if that is more."""
        return max(-(-vgpu_type.fb_mib // 1024), self.gib(vgpu_type) // vgpu_type.per_instance)

    def kind(self, vgpu_type: VgpuType) -> Hashable:
        return profile_of(vgpu_type, self._profiles) or 0, -vgpu_type.fb_mib, vgpu_type.per_instance

    def places(self, vgpu_type: VgpuType) -> tuple[int, ...]:
        if not vgpu_type.mig_backed:
            return ()
        profile, most = profile_of(vgpu_type, self._profiles), vgpu_type.per_instance
        inside = [self.gib(vgpu_type) * n // most for n in range(most)]
        return tuple(
            self.starts[number] + at for number, having in self._instances if having == profile for at in inside
        )

    def places_of(self, vgpus: Sequence[PlacedVgpu]) -> list[int | None]:
        """Return the placements in the region of vGPUs in GPU instances. One with an unknown placement in its instance
        is assumed at the first free one. None for those in no instance of the region.
        """
        taken = 0
        out: list[int | None] = [None] * len(vgpus)
        for n, vgpu in sorted(enumerate(vgpus), key=lambda pair: pair[1].inside is None):
            start = None if vgpu.placement is None else self.starts.get(vgpu.placement)
            if start is None:
                continue
            masks = [(at, m) for at, m in self.masks(vgpu.type) if self.owners[at] == vgpu.placement]
            known = [(at, m) for at, m in masks if at - start == vgpu.inside]
            for at, mask in (known or [(at, m) for at, m in masks if not m & taken])[:1]:
                taken, out[n] = taken | mask, at
        return out


class MixedInstancePolicy:
    """Every GPU instance is in mixed-size mode. The state is that of their region."""

    def __init__(self, table: VgpuTable, instances: Sequence[tuple[int, int]], profiles: Mapping[str, int]) -> None:
        self.region = InstanceRegion(table, instances, profiles)

    def initial_state(self, placed: Iterable[PlacedVgpu]) -> State:
        vgpus = list(placed)
        places = self.region.places_of(vgpus)
        known = [v._replace(placement=at) for v, at in zip(vgpus, places, strict=True) if at is not None]
        return self.region.initial_state(known)

    def place(self, state: State, vgpu_type: VgpuType) -> tuple[State, VgpuPlacement] | None:
        found = self.region.place(state, vgpu_type)
        return None if found is None or found[1] is None else (found[0], self.region.owners[found[1]])

    def kind(self, vgpu_type: VgpuType) -> Hashable:
        return self.region.kind(vgpu_type)

    def cannot_fit(self, state: State, remaining: Types) -> bool:
        return self.region.cannot_fit(state, remaining)

    def find_target(self, items: Sequence[WantedVgpu], present: Sequence[PresentVgpu]) -> VgpuTarget | None:
        """Return the target that destroys the fewest vGPUs, held ones last. None if the items can never be placed."""
        typed = [PlacedVgpu(h.type, h.placement, h.vgpu.placement) for h in present if h.type is not None]
        places = iter(self.region.places_of(typed))
        flat = [h._replace(placement=None if h.type is None else next(places)) for h in present]
        plain = [i._replace(request=msgspec.structs.replace(i.request, placement=None)) for i in items]
        found = find_mixed_size_target(self.region, plain, flat)
        if found is None:
            return None
        before = {h.vgpu.key: h for h in present}
        retained, lost = (tuple(before[h.vgpu.key] for h in each) for each in (found.retained, found.to_destroy))
        to_create = [(item, None if at is None else self.region.owners[at]) for item, at in found.to_create]
        return VgpuTarget(retained, lost, tuple(to_create))


def instance_policy(
    table: VgpuTable, instances: Sequence[tuple[int, int]], profiles: Mapping[str, int], *, mixed: bool
) -> PlacementPolicy:
    """Return the policy by which GPU instances, (id, profile id) each, take vGPUs."""
    kind = MixedInstancePolicy if mixed else MigBackedPolicy
    return kind(table, instances, profiles)


def fewest_instances(table: VgpuTable, types: Types, profiles: Mapping[str, int]) -> dict[int, int]:
    """Return the fewest GPU instances in mixed-size mode that take MIG-backed vGPUs, by profile id. The number may be
    larger than the fewest if no GPU has so much memory.
    """
    out: dict[int, int] = {}
    for profile in dict.fromkeys(profile_of(each, profiles) or 0 for each, _ in types):
        mine = [(each, n) for each, n in types if (profile_of(each, profiles) or 0) == profile]
        out[profile] = _fewest(table, mine, profile, profiles)
    return out


def _fewest(table: VgpuTable, types: Types, profile: int, profiles: Mapping[str, int]) -> int:
    items = [WantedVgpu(DesiredVgpu(each.id or 0, each.name), each) for each, n in types for _ in range(n)]
    every = InstanceRegion(table, [(n, profile) for n in range(len(items))], profiles)
    items.sort(key=lambda item: -every.size(item.type))
    taken = 0
    for item in items:  # the largest first, each at its first free placement: enough, and rarely too many
        placed = every.place(taken, item.type)
        assert placed is not None, "there is a GPU instance for each"
        taken = placed[0]
    gib = every.gib(items[0].type)
    least, enough = -(-sum(every.size(item.type) for item in items) // gib), -(-taken.bit_length() // gib)
    for number in range(least, min(enough, MOST_GIB // gib + 1)):
        policy = MixedInstancePolicy(table, [(n, profile) for n in range(number)], profiles)
        if policy.find_target(items, ()) is not None:
            return number
    return enough
