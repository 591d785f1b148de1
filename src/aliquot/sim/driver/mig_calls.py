"""The MIG calls of the driver by name, reading and writing."""

from __future__ import annotations

from collections.abc import Callable

from aliquot.core.model.catalog import ComputeProfile, Profile
from aliquot.sim import codes
from aliquot.sim.codes import NvmlRefusalError
from aliquot.sim.driver import sensor_values as sensors
from aliquot.sim.driver.compute import SimInstance
from aliquot.sim.driver.gpu import SimGpu
from aliquot.sim.driver.nvml_calls import Args, DeviceCall, engines, numbers
from aliquot.sim.node import DriverWrite, SimNode
from aliquot.sim.session import SimSession

CAPABILITY_GFX = 2
COMPUTE_CAPABILITY_GFX = 1
"""Profile info version 3: the second bit of GPU instance capabilities, the first of compute instance ones (nvml.h)."""

WriteCall = Callable[[SimNode, SimSession, Args], str]


def _mig_mode(_n: SimNode, _s: SimSession, gpu: SimGpu, _a: Args) -> str:
    current, pending = gpu.mode()
    return numbers(int(current), int(pending))


def _mig_handle(_n: SimNode, _s: SimSession, gpu: SimGpu, args: Args) -> str:
    gpu.mode()
    if not 0 <= args[3] < max(1, gpu.max_mig_devices()):
        raise NvmlRefusalError(codes.INVALID_ARGUMENT)
    devices = gpu.mig_devices()
    if args[3] >= len(devices):
        raise NvmlRefusalError(codes.NOT_FOUND)
    return numbers(gpu.state.index, *devices[args[3]])


def _profile_row(gpu: SimGpu, profile: Profile) -> str:
    family = gpu.family_table.family
    memory = sensors.instance_memory_mib(family, profile, gpu.state.memory_mib)
    caps = CAPABILITY_GFX if profile.gfx else 0
    sm = sensors.instance_sm(family, profile)
    return (
        numbers(profile.id, 0, profile.compute_slices, profile.max_instances, sm, *engines(profile), memory, caps)
        + f"|MIG {profile.name}"
    )


def _profile_info(_n: SimNode, _s: SimSession, gpu: SimGpu, args: Args) -> str:
    gpu.mode()
    return _profile_row(gpu, gpu.profile_at(args[3]))


def _profile_info_by_id(_n: SimNode, _s: SimSession, gpu: SimGpu, args: Args) -> str:
    gpu.mode()
    if gpu.driver_major == 535 and not gpu.state.mig:
        raise NvmlRefusalError(codes.NOT_SUPPORTED)
    return _profile_row(gpu, gpu.profile(args[3]))


def _placements(node: SimNode, session: SimSession, gpu: SimGpu, args: Args) -> str:
    return numbers(*(x for placement in gpu.placements(args[3], node.privileged(session)) for x in placement))


def _instance_info(_n: SimNode, _s: SimSession, gpu: SimGpu, args: Args) -> str:
    found = gpu.instance(args[1])
    return numbers(found.id, found.profile, found.start, found.size)


def _instance_by_id(_n: SimNode, _s: SimSession, gpu: SimGpu, args: Args) -> str:
    return str(gpu.by_id(args[3]).id)


def _compute_row(gpu: SimGpu, owner: Profile, compute: ComputeProfile) -> str:
    sm = sensors.compute_sm(gpu.family_table.family, owner, compute)
    caps = COMPUTE_CAPABILITY_GFX if owner.gfx else 0
    return (
        numbers(compute.id, compute.compute_slices, compute.max_instances, sm, *engines(owner), caps)
        + f"|MIG {compute.name}"
    )


def _compute_profile_info(_n: SimNode, _s: SimSession, gpu: SimGpu, args: Args) -> str:
    inside = SimInstance(gpu, args[1])
    return _compute_row(gpu, inside.profile, inside.profile_at(args[3], args[4]))


def _compute_info(_n: SimNode, _s: SimSession, gpu: SimGpu, args: Args) -> str:
    found = SimInstance(gpu, args[1]).one(args[2])
    return numbers(found.id, found.profile, found.start, found.size)


def _compute_by_id(_n: SimNode, _s: SimSession, gpu: SimGpu, args: Args) -> str:
    return str(SimInstance(gpu, args[1]).one(args[3], codes.NOT_FOUND).id)


MIG_READS: dict[str, DeviceCall] = {
    "DeviceGetMigMode": _mig_mode,
    "DeviceGetMaxMigDeviceCount": lambda _n, _s, gpu, _a: str(gpu.max_mig_devices()),
    "DeviceGetMigDeviceHandleByIndex": _mig_handle,
    "DeviceGetGpuInstanceProfileInfo": _profile_info,
    "DeviceGetGpuInstanceProfileInfoById": _profile_info_by_id,
    "DeviceGetGpuInstancePossiblePlacements": _placements,
    "DeviceGetGpuInstanceRemainingCapacity": lambda n, s, gpu, args: str(gpu.remaining(args[3], n.privileged(s))),
    "DeviceGetGpuInstances": lambda n, s, gpu, args: numbers(*gpu.listed(args[3], n.privileged(s))),
    "DeviceGetGpuInstanceById": _instance_by_id,
}
"""Reads whose address is a GPU."""

INSTANCE_READS: dict[str, DeviceCall] = {
    "GpuInstanceGetInfo": _instance_info,
    "GpuInstanceGetComputeInstanceProfileInfo": _compute_profile_info,
    "GpuInstanceGetComputeInstanceRemainingCapacity": lambda _n, _s, target, args: str(
        SimInstance(target, args[1]).remaining(args[3])
    ),
    "GpuInstanceGetComputeInstancePossiblePlacements": lambda _n, _s, target, args: numbers(
        *(x for placement in SimInstance(target, args[1]).placements(args[3]) for x in placement)
    ),
    "GpuInstanceGetComputeInstances": lambda _n, _s, target, args: numbers(
        *SimInstance(target, args[1]).listed(args[3])
    ),
    "GpuInstanceGetComputeInstanceById": _compute_by_id,
    "ComputeInstanceGetInfo": _compute_info,
}
"""Reads whose address is a GPU instance or a compute instance."""


# -- writing


def _slices(gpu: SimGpu, profile_id: int) -> int:
    profile = gpu.table.family.by_id.get(profile_id) if gpu.table else None
    return profile.compute_slices if profile else 1


def _set_mode(node: SimNode, session: SimSession, args: Args) -> str:
    gpu = node.gpu(args[0])
    before = gpu.state.mig
    changes = gpu.table is not None and args[3] in (0, 1) and bool(args[3]) != before
    busy = changes and not session.hand and node.faults.mode_busy(args[0], node.environment.now())
    others = node.has_other_sessions(session)

    def apply(target: SimGpu) -> int:
        return target.set_mode(args[3], others, node.privileged(session), busy)

    return str(node.write(session, DriverWrite("DeviceSetMigMode", args[0]), apply, "mode" if changes else ""))


def _create(node: SimNode, session: SimSession, args: Args) -> str:
    placement = (args[4], args[5]) if len(args) > 4 else None
    name = "DeviceCreateGpuInstanceWithPlacement" if placement else "DeviceCreateGpuInstance"
    call = DriverWrite(name, args[0], profile=args[3], placement=f"{placement[0]}:{placement[1]}" if placement else "")

    def apply(target: SimGpu) -> int:
        return target.create(args[3], placement, node.privileged(session))

    return str(node.write(session, call, apply, "create", _slices(node.gpu(args[0]), args[3])))


def _destroy(node: SimNode, session: SimSession, args: Args) -> str:
    def apply(target: SimGpu) -> int:
        target.destroy(args[1], node.privileged(session))
        return args[1]

    gpu = node.gpu(args[0])
    slices = next((_slices(gpu, i.profile) for i in gpu.state.instances if i.id == args[1]), 1)
    node.write(session, DriverWrite("GpuInstanceDestroy", args[0], args[1]), apply, "destroy", slices)
    return ""


def _create_compute(node: SimNode, session: SimSession, args: Args) -> str:
    placement = (args[4], args[5]) if len(args) > 4 else None
    name = "GpuInstanceCreateComputeInstanceWithPlacement" if placement else "GpuInstanceCreateComputeInstance"
    call = DriverWrite(
        name, args[0], args[1], profile=args[3], placement=f"{placement[0]}:{placement[1]}" if placement else ""
    )

    def apply(target: SimGpu) -> int:
        return SimInstance(target, args[1]).create(args[3], placement, node.privileged(session))

    return str(node.write(session, call, apply, "create-compute", _compute_slices(node.gpu(args[0]), args[1])))


def _destroy_compute(node: SimNode, session: SimSession, args: Args) -> str:
    def apply(target: SimGpu) -> int:
        SimInstance(target, args[1]).destroy(args[2], node.privileged(session))
        return args[2]

    slices = _compute_slices(node.gpu(args[0]), args[1])
    node.write(
        session, DriverWrite("ComputeInstanceDestroy", args[0], args[1], args[2]), apply, "destroy-compute", slices
    )
    return ""


def _compute_slices(gpu: SimGpu, gi: int) -> int:
    return next((_slices(gpu, i.profile) for i in gpu.state.instances if i.id == gi), 1)


def _persistence(node: SimNode, session: SimSession, args: Args) -> str:
    def apply(target: SimGpu) -> int:
        if not node.privileged(session):
            raise NvmlRefusalError(codes.NO_PERMISSION)
        if args[3] not in (0, 1):
            raise NvmlRefusalError(codes.INVALID_ARGUMENT)
        target.state.persistence = bool(args[3])
        return -1

    node.write(session, DriverWrite("DeviceSetPersistenceMode", args[0]), apply)
    return ""


def reset(node: SimNode, session: SimSession, args: Args) -> str:
    """Reset a GPU as ``nvidia-smi -r`` does through the kernel. It is not an NVML call and needs no session."""

    def apply(target: SimGpu) -> int:
        target.reset(bool(node.sessions), node.privileged(session))
        node.faults.after_reset(args[0])
        return -1

    node.write(session, DriverWrite("DeviceReset", args[0]), apply, "reset")
    return ""


WRITES: dict[str, WriteCall] = {
    "DeviceSetMigMode": _set_mode,
    "DeviceCreateGpuInstance": _create,
    "DeviceCreateGpuInstanceWithPlacement": _create,
    "GpuInstanceDestroy": _destroy,
    "GpuInstanceCreateComputeInstance": _create_compute,
    "GpuInstanceCreateComputeInstanceWithPlacement": _create_compute,
    "ComputeInstanceDestroy": _destroy_compute,
    "DeviceSetPersistenceMode": _persistence,
    "DeviceReset": reset,
}
"""Calls that change something. ``DeviceReset`` stands for a GPU reset, which is not NVML's."""
