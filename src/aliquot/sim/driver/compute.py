"""Compute instances inside one GPU instance: slots, default placements, and the return codes of the hardware."""

from __future__ import annotations

from aliquot.core.model.catalog import ComputeProfile, Profile
from aliquot.sim import codes
from aliquot.sim.codes import NvmlRefusalError
from aliquot.sim.driver.gpu import SimGpu
from aliquot.sim.driver.placement_table import span_mask
from aliquot.sim.state import ComputeState, InstanceState


class SimInstance:
    """Calls on an existing GPU instance. Each raises ``NvmlRefusalError`` and then has changed nothing."""

    def __init__(self, gpu: SimGpu, instance_id: int) -> None:
        self.gpu = gpu
        self.state: InstanceState = gpu.instance(instance_id)
        self.profile: Profile = gpu.family_table.family.by_id[self.state.profile]

    def compute_profile(self, profile_id: int) -> ComputeProfile:
        """Return a profile by its id, which equals its index. An id beyond the library's list is an invalid argument,
        one that this profile lacks is not supported.
        """
        if not 0 <= profile_id < codes.COMPUTE_PROFILE_INDEXES:
            raise NvmlRefusalError(codes.INVALID_ARGUMENT)
        found = self.profile.compute_profile(profile_id)
        if found is None:
            raise NvmlRefusalError(codes.NOT_SUPPORTED)
        return found

    def profile_at(self, index: int, engine: int) -> ComputeProfile:
        if engine != 0 or not 0 <= index < codes.COMPUTE_PROFILE_INDEXES:
            raise NvmlRefusalError(codes.INVALID_ARGUMENT)
        for profile in self.profile.compute:
            if profile.nvml_index == index:
                return profile
        raise NvmlRefusalError(codes.NOT_SUPPORTED)

    def one(self, compute_id: int, missing: int = codes.INVALID_ARGUMENT) -> ComputeState:
        """Return an existing compute instance. A handle of a destroyed one is invalid, an unknown id is not found."""
        for compute in self.state.compute:
            if compute.id == compute_id:
                return compute
        raise NvmlRefusalError(missing)

    def placements(self, profile_id: int) -> list[tuple[int, int]]:
        profile = self.compute_profile(profile_id)
        return [(start, profile.size) for start in profile.starts]

    @property
    def _used(self) -> int:
        return sum(span_mask(c.start, c.size) for c in self.state.compute)

    def _fits(self, profile: ComputeProfile, extra: int = 1) -> bool:
        """Return whether compute slices and counts allow ``extra`` more of a profile, regardless of placement."""
        slices = {p.id: p.compute_slices for p in self.profile.compute}
        taken = sum(slices[c.profile] for c in self.state.compute)
        same = sum(c.profile == profile.id for c in self.state.compute)
        return (
            taken + extra * profile.compute_slices <= self.profile.compute_slices
            and same + extra <= profile.max_instances
            and len(self.state.compute) + extra <= codes.MAX_COMPUTE_INSTANCES
        )

    def remaining(self, profile_id: int) -> int:
        """Return how many more compute instances of only this profile can be created now."""
        profile = self.compute_profile(profile_id)
        count, taken = 0, self._used
        for start in sorted(profile.starts):
            mask = span_mask(start, profile.size)
            if not mask & taken and self._fits(profile, count + 1):
                taken |= mask
                count += 1
        return count

    def create(self, profile_id: int, placement: tuple[int, int] | None = None, privileged: bool = True) -> int:
        """Create a compute instance and return its id: the lowest free number. An occupied requested placement is "in
        use" (open-gpu-kernel-modules), a placement outside the list is an invalid argument.
        """
        if not privileged:
            raise NvmlRefusalError(codes.NO_PERMISSION)
        profile = self.compute_profile(profile_id)
        used = self._used
        if placement is not None:
            if placement[0] not in profile.starts or placement[1] != profile.size:
                raise NvmlRefusalError(codes.INVALID_ARGUMENT)
            if span_mask(*placement) & used:
                raise NvmlRefusalError(codes.IN_USE)
        if not self._fits(profile):
            raise NvmlRefusalError(codes.INSUFFICIENT_RESOURCES)
        start = placement[0] if placement is not None else self._default(profile, used)
        taken = {c.id for c in self.state.compute}
        number = next(n for n in range(codes.MAX_COMPUTE_INSTANCES) if n not in taken)
        new = ComputeState(number, profile_id, start, profile.size)
        self.state.compute = sorted([*self.state.compute, new], key=lambda c: c.id)
        return number

    def _default(self, profile: ComputeProfile, used: int) -> int:
        """Return the free start that reduces the remaining capacity least, the lowest on a tie (kernel source)."""
        choices = [span_mask(s, p.size) for p in self.profile.compute for s in p.starts]
        best, most = -1, -1
        for start in sorted(profile.starts):
            mask = span_mask(start, profile.size)
            if mask & used:
                continue
            left = sum(1 for choice in choices if not choice & (used | mask))
            if left > most:
                best, most = start, left
        if best < 0:
            raise NvmlRefusalError(codes.INSUFFICIENT_RESOURCES)
        return best

    def destroy(self, compute_id: int, privileged: bool = True) -> None:
        self.one(compute_id)
        if not privileged:
            raise NvmlRefusalError(codes.NO_PERMISSION)
        held = any((p.gi, p.ci) == (self.state.id, compute_id) for p in self.gpu.state.processes)
        if held or self.gpu.has_vgpu(self.state.id):
            raise NvmlRefusalError(codes.IN_USE)
        self.state.compute = [c for c in self.state.compute if c.id != compute_id]

    def listed(self, profile_id: int) -> list[int]:
        self.compute_profile(profile_id)
        return [c.id for c in self.state.compute if c.profile == profile_id]
