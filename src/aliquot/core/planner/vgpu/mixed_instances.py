"""Mixed-size mode inside GPU instances, on chips that share a GPU instance between vGPUs (RTX PRO Blackwell).

Source: NVML since R575 (``nvmlGpuInstanceSetVgpuHeterogeneousMode``), and open GPU kernel modules 595,
``kernel_vgpu_mgr.c``. The placements of a type divide its GPU instance, which is as large as its largest type. The
driver takes the lowest GPU instance id with a free placement, and in it the first one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import count

from aliquot.core.model.desired import DesiredVgpu
from aliquot.core.model.vgpu_types import VgpuTable, VgpuType
from aliquot.core.planner.vgpu.matching import WantedVgpu
from aliquot.core.planner.vgpu.placement_policies import (
    MigBackedPolicy,
    PlacedVgpu,
    PlacementPolicy,
    State,
    Types,
    VgpuPlacement,
    profile_of,
)
from aliquot.core.planner.vgpu.placement_search import find_order


class MixedInstancePolicy:
    """Every GPU instance is in mixed-size mode. The state is the GiB that are taken in each, as bits."""

    def __init__(self, table: VgpuTable, instances: Sequence[tuple[int, int]], profiles: Mapping[str, int]) -> None:
        self.instances = tuple(sorted(instances))
        self._profiles = profiles
        self._regions: dict[int | None, int] = {}
        for each in table.types:
            if each.mig_backed:
                profile = profile_of(each, profiles)
                self._regions[profile] = max(self._regions.get(profile, 0), each.size_gib)

    def size(self, vgpu_type: VgpuType) -> int:
        """Return the GiB that a vGPU takes: its profile size, or its part of the instance if that is more."""
        return max(-(-vgpu_type.fb_mib // 1024), self._region(vgpu_type) // vgpu_type.per_instance)

    def _region(self, vgpu_type: VgpuType) -> int:
        return self._regions[profile_of(vgpu_type, self._profiles)]

    def masks(self, vgpu_type: VgpuType) -> list[tuple[int, int]]:
        """Return (placement id, GiB that it covers as bits) in the order in which the driver tries them."""
        covered, most = (1 << self.size(vgpu_type)) - 1, vgpu_type.per_instance
        return [(at, covered << at) for at in (self._region(vgpu_type) * n // most for n in range(most))]

    def initial_state(self, placed: Iterable[PlacedVgpu]) -> State:
        """Return the state. A vGPU with an unknown placement in its instance is assumed at the first free one."""
        taken = {number: 0 for number, _ in self.instances}
        for vgpu in sorted(placed, key=lambda v: v.inside is None):
            if vgpu.placement is None or vgpu.placement not in taken:
                continue
            before, found = taken[vgpu.placement], self.masks(vgpu.type)
            masks = [m for at, m in found if at == vgpu.inside] or [m for _, m in found if not m & before]
            taken[vgpu.placement] |= masks[0] if masks else 0
        return tuple(taken.values())

    def place(self, state: State, vgpu_type: VgpuType) -> tuple[State, VgpuPlacement] | None:
        if not vgpu_type.mig_backed:
            return None
        profile, masks = profile_of(vgpu_type, self._profiles), self.masks(vgpu_type)
        for n, ((number, having), taken) in enumerate(zip(self.instances, state, strict=True)):
            free = next((m for _, m in masks if having == profile and not m & taken), None)
            if free is not None:
                return (*state[:n], taken | free, *state[n + 1 :]), number
        return None

    def kind(self, vgpu_type: VgpuType) -> Hashable:
        return profile_of(vgpu_type, self._profiles) or 0, -vgpu_type.fb_mib, vgpu_type.per_instance

    def cannot_fit(self, state: State, remaining: Types) -> bool:
        """Report whether a size lacks placements in instances of its profile, or all sizes together lack space."""
        needed: dict[int | None, int] = {}
        for vgpu_type, n in remaining:
            profile = profile_of(vgpu_type, self._profiles)
            needed[profile] = needed.get(profile, 0) + n * self.size(vgpu_type)
            masks = self.masks(vgpu_type)
            if sum(not m & taken for taken in self._taken(state, profile) for _, m in masks) < n:
                return True
        return any(
            sum(self._regions[profile] - taken.bit_count() for taken in self._taken(state, profile)) < gib
            for profile, gib in needed.items()
        )

    def _taken(self, state: State, profile: int | None) -> list[int]:
        return [t for t, (_, having) in zip(state, self.instances, strict=True) if having == profile]


def instance_policy(
    table: VgpuTable, instances: Sequence[tuple[int, int]], profiles: Mapping[str, int], *, mixed: bool
) -> PlacementPolicy:
    """Return the policy by which GPU instances, (id, profile id) each, take vGPUs."""
    kind = MixedInstancePolicy if mixed else MigBackedPolicy
    return kind(table, instances, profiles)


def fewest_instances(table: VgpuTable, types: Types, profiles: Mapping[str, int]) -> dict[int, int]:
    """Return the fewest GPU instances in mixed-size mode that take MIG-backed vGPUs, by profile id."""
    out: dict[int, int] = {}
    for profile in dict.fromkeys(profile_of(each, profiles) or 0 for each, _ in types):
        mine = [(each, n) for each, n in types if (profile_of(each, profiles) or 0) == profile]
        items = [WantedVgpu(DesiredVgpu(each.id or 0, each.name), each) for each, n in mine for _ in range(n)]
        for number in count(1):
            policy = MixedInstancePolicy(table, [(n, profile) for n in range(number)], profiles)
            if find_order(policy, policy.initial_state(()), items) is not None:
                out[profile] = number
                break
    return out
