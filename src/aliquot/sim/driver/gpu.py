"""A GPU of the driver model: MIG mode and GPU instances, with the hardware's order of checks and return codes."""

from __future__ import annotations

from aliquot.core.model import catalog
from aliquot.core.model.catalog import Profile
from aliquot.sim import codes
from aliquot.sim.codes import NvmlRefusalError
from aliquot.sim.driver.placement_table import SlotPartition, SlotTable, allowed
from aliquot.sim.state import WHOLE, GpuState, InstanceState, NeighbourState, SchedulerState

LIBRARY_INDEXES_13 = 18
LIBRARY_INDEXES_12 = 10
"""GPU instance profile indexes that a library knows; a higher index is an invalid argument (nvml.h)."""


class SimGpu:
    """Calls on one GPU. Each raises ``NvmlRefusalError`` with NVML's code and then has changed nothing."""

    def __init__(self, state: GpuState, driver_major: int) -> None:
        self.state = state
        self.driver_major = driver_major
        self.table: SlotTable | None = None
        if state.family is not None:
            self.table = SlotTable(catalog.family(state.family), state.swapped)

    # -- state

    @property
    def visible(self) -> bool:
        """True if NVIDIA's driver has the GPU: NVML does not see a GPU in passthrough."""
        return self.state.driver == "nvidia"

    @property
    def profiles(self) -> tuple[Profile, ...]:
        """The profiles that this driver knows for this GPU; later drivers added the 1g.20gb-like and +me profiles."""
        if self.table is None:
            return ()
        return tuple(p for p in self.table.family.profiles if _since(p) <= self.driver_major)

    def profile(self, profile_id: int) -> Profile:
        """Return a profile by id. Raises NOT_SUPPORTED for an id that this GPU does not have."""
        for profile in self.profiles:
            if profile.id == profile_id:
                return profile
        raise NvmlRefusalError(codes.NOT_SUPPORTED)

    def instance(self, instance_id: int, missing: int = codes.INVALID_ARGUMENT) -> InstanceState:
        """Return an existing GPU instance. A handle of a destroyed one is an invalid argument, an unknown id is not
        found.
        """
        for instance in self.state.instances:
            if instance.id == instance_id:
                return instance
        raise NvmlRefusalError(missing)

    @property
    def _used(self) -> int:
        return sum(self._mask(i) for i in self.state.instances)

    def _mask(self, instance: InstanceState) -> int:
        return next(q.mask for q in self.partitions(instance.profile) if q.id == instance.id)

    def partitions(self, profile_id: int) -> tuple[SlotPartition, ...]:
        return self.family_table.partitions[profile_id]

    @property
    def family_table(self) -> SlotTable:
        """The table of the GPU. Raises NOT_SUPPORTED on a GPU without MIG."""
        if self.table is None:
            raise NvmlRefusalError(codes.NOT_SUPPORTED)
        return self.table

    def _present(self) -> list[Profile]:
        by_id = self.family_table.family.by_id
        return [by_id[i.profile] for i in self.state.instances]

    # -- profiles

    def profile_at(self, index: int) -> Profile:
        """Return the profile at an NVML index. R535 reports none while MIG mode is off."""
        last = LIBRARY_INDEXES_13 if self.driver_major >= 570 else LIBRARY_INDEXES_12
        if not 0 <= index < last:
            raise NvmlRefusalError(codes.INVALID_ARGUMENT)
        if self.driver_major == 535 and not self.state.mig:
            raise NvmlRefusalError(codes.NOT_SUPPORTED)
        for profile in self.profiles:
            if profile.nvml_index == index:
                return profile
        raise NvmlRefusalError(codes.NOT_SUPPORTED)

    def placements(self, profile_id: int, privileged: bool = True) -> list[tuple[int, int]]:
        """Return all placements of a profile, occupied or not."""
        self.family_table  # noqa: B018  a GPU without MIG refuses first
        _require(privileged)
        profile = self.profile(profile_id)
        return [(start, profile.size) for start in profile.starts]

    def remaining(self, profile_id: int, privileged: bool = True) -> int:
        """Return how many more instances of only this profile can be created now."""
        table = self.family_table
        _require(privileged)
        self._require_mode()
        profile = self.profile(profile_id)
        count = table.disjoint(profile_id, self._used)
        present = self._present()
        while count and not allowed(table.family, [*present, *[profile] * count]):
            count -= 1
        return count

    # -- GPU instances

    def create(self, profile_id: int, placement: tuple[int, int] | None = None, privileged: bool = True) -> int:
        """Create a GPU instance and return its id. Order of checks: open-gpu-kernel-modules, and
        captures for IN_USE.
        """
        table = self.family_table
        _require(privileged)
        self._require_mode()
        profile = self.profile(profile_id)
        wanted = None
        if placement is not None:
            wanted = table.at(profile_id, *placement)
            if wanted is None:
                raise NvmlRefusalError(codes.INVALID_ARGUMENT)
        if any(p.gi == WHOLE for p in self.state.processes):
            raise NvmlRefusalError(codes.IN_USE)
        used = self._used
        if not allowed(table.family, [*self._present(), profile]):
            raise NvmlRefusalError(codes.INSUFFICIENT_RESOURCES)
        chosen = table.default(profile_id, used) if placement is None else wanted
        if chosen is None or chosen.mask & used:
            raise NvmlRefusalError(codes.INSUFFICIENT_RESOURCES)
        new = InstanceState(chosen.id, profile_id, chosen.start, chosen.size, [])
        self.state.instances = sorted([*self.state.instances, new], key=lambda i: i.id)
        return chosen.id

    def destroy(self, instance_id: int, privileged: bool = True) -> None:
        instance = self.instance(instance_id)
        _require(privileged)
        if instance.compute or any(p.gi == instance_id for p in self.state.processes) or self.has_vgpu(instance_id):
            raise NvmlRefusalError(codes.IN_USE)
        self.state.instances = [i for i in self.state.instances if i.id != instance_id]

    def has_vgpu(self, instance_id: int) -> bool:
        return any(v.gi == instance_id for v in self.state.vgpus)

    def listed(self, profile_id: int, privileged: bool = True) -> list[int]:
        """Return the ids of this profile's instances in ascending order."""
        self.family_table  # noqa: B018  a GPU without MIG refuses first
        _require(privileged)
        self._require_mode()
        self.profile(profile_id)
        return [i.id for i in self.state.instances if i.profile == profile_id]

    def by_id(self, instance_id: int) -> InstanceState:
        self.family_table  # noqa: B018  a GPU without MIG refuses first
        self._require_mode()
        return self.instance(instance_id, codes.NOT_FOUND)

    # -- MIG mode

    def mode(self) -> tuple[bool, bool]:
        """Return the current and the pending MIG mode. Raises NOT_SUPPORTED on a GPU without MIG."""
        self.family_table  # noqa: B018  a GPU without MIG refuses first
        return self.state.mig, self.state.pending

    def set_mode(self, requested: int, others: bool, privileged: bool = True, busy: bool = False) -> int:
        """Store the requested mode and try to activate it. Return the activation status.

        Ampere must reset the GPU to change the mode, so any other client (``others``: an open session that is not the
        caller's) leaves the request pending. Hopper and later need no reset: only processes and instances block them.
        Virtual functions prevent disabling the mode at all, and prevent a reset.
        """
        table = self.family_table
        _require(privileged)
        if requested not in (0, 1):
            raise NvmlRefusalError(codes.INVALID_ARGUMENT)
        if self.state.mig and not requested and self.state.functions:
            raise NvmlRefusalError(codes.IN_USE)
        self.state.pending = bool(requested)
        if self.state.pending == self.state.mig:
            return codes.SUCCESS
        if self.state.processes or self.state.instances or self.state.vgpus or busy:
            return codes.IN_USE
        if table.family.mode.change_needs_gpu_reset:
            if self.state.guest:
                return codes.RESET_REQUIRED
            if others or self.state.functions:
                return codes.IN_USE
        self.state.mig = self.state.pending
        self.state.mixed = self.state.mixed and not self.state.mig
        self.state.scheduler = SchedulerState()
        return codes.SUCCESS

    def reset(self, sessions: bool, privileged: bool = True) -> None:
        """Reset the GPU. Any client prevents it; ``sessions`` says whether one has NVML open."""
        _require(privileged)
        if self.state.guest:
            raise NvmlRefusalError(codes.NOT_SUPPORTED)
        if sessions or self.state.processes or self.state.functions or self.state.vgpus:
            raise NvmlRefusalError(codes.IN_USE)
        self.restart()

    def reboot(self) -> None:
        """End all processes, instances, virtual functions and vGPUs. A lost GPU is found again, and each device is
        bound to its native driver.
        """
        self.state.processes = []
        self.state.lost = self.state.locked = False
        self.state.driver, self.state.override, self.state.autoprobe = "nvidia", "", True
        self.state.functions = []
        if self.state.neighbour is not None:
            self.state.neighbour = NeighbourState()
        self.state.others = [each for each in self.state.others if not each.temporary]
        for each in self.state.others:
            each.driver, each.override = each.native, ""
        self.restart()

    def reload(self) -> None:
        """Replace the driver of the GPU: processes, virtual functions, instances and vGPUs end."""
        self.state.processes = []
        self.state.functions = []
        self.restart()

    def restart(self) -> None:
        """Apply the effects of a reset, or of unbinding the driver."""
        self.state.instances = []
        self.state.vgpus = []
        self.state.mixed = False
        self.state.scheduler = SchedulerState()
        survives = self.table is not None and self.table.family.mode.mode_survives_reboot
        self.state.mig = self.state.pending = self.state.pending and survives

    def _require_mode(self) -> None:
        if not self.state.mig:
            raise NvmlRefusalError(codes.NOT_SUPPORTED)

    def max_mig_devices(self) -> int:
        """Return 0 without MIG or with MIG off, else the number of compute slices (an estimate from slice counts)."""
        return self.table.family.compute_slices if self.table is not None and self.state.mig else 0

    def mig_devices(self) -> list[tuple[int, int]]:
        """Return (GPU instance id, compute instance id) pairs in the order of ``nvidia-smi -L``."""
        return [(i.id, c.id) for i in self.state.instances for c in sorted(i.compute, key=lambda c: c.id)]


def _require(privileged: bool) -> None:
    if not privileged:
        raise NvmlRefusalError(codes.NO_PERMISSION)


def _since(profile: Profile) -> int:
    word = (profile.since_driver or "").lstrip("R").split(".", 1)[0]
    return int(word) if word.isdigit() else 0
