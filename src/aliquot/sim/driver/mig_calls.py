"""The MIG calls of the driver by name, reading and writing."""

from __future__ import annotations

from collections.abc import Callable

from aliquot.core.model.catalog import ComputeProfile, Profile
from aliquot.sim import codes
from aliquot.sim.codes import Refused
from aliquot.sim.driver import sensor_values as figures
from aliquot.sim.driver.compute import SimInstance
from aliquot.sim.driver.gpu import SimGpu
from aliquot.sim.driver.nvml_calls import Args, DeviceCall, engines, numbers
from aliquot.sim.node import Call, SimNode
from aliquot.sim.session import Session

CAPABILITY_GFX = 2
COMPUTE_CAPABILITY_GFX = 1
"""Profile info version 3: the second bit of GPU instance capabilities, the first of compute instance ones (nvml.h)."""

WriteCall = Callable[[SimNode, Session, Args], str]


def _mig_mode(_n: SimNode, _s: Session, gpu: SimGpu, _a: Args) -> str:
    current, pending = gpu.mode()
    return numbers(int(current), int(pending))


def _mig_handle(_n: SimNode, _s: Session, gpu: SimGpu, a: Args) -> str:
    gpu.mode()
    if not 0 <= a[3] < max(1, gpu.max_mig_devices()):
        raise Refused(codes.INVALID_ARGUMENT)
    devices = gpu.mig_devices()
    if a[3] >= len(devices):
        raise Refused(codes.NOT_FOUND)
    return numbers(gpu.state.index, *devices[a[3]])


def _profile_row(gpu: SimGpu, p: Profile) -> str:
    family = gpu.family_table.family
    memory = figures.instance_memory_mib(family, p, gpu.state.memory_mib)
    caps = CAPABILITY_GFX if p.gfx else 0
    sm = figures.instance_sm(family, p)
    return numbers(p.id, 0, p.compute_slices, p.max_instances, sm, *engines(p), memory, caps) + f"|MIG {p.name}"


def _profile_info(_n: SimNode, _s: Session, gpu: SimGpu, a: Args) -> str:
    gpu.mode()
    return _profile_row(gpu, gpu.profile_at(a[3]))


def _profile_info_by_id(_n: SimNode, _s: Session, gpu: SimGpu, a: Args) -> str:
    gpu.mode()
    if gpu.driver_major == 535 and not gpu.state.mig:
        raise Refused(codes.NOT_SUPPORTED)
    return _profile_row(gpu, gpu.profile(a[3]))


def _placements(n: SimNode, s: Session, gpu: SimGpu, a: Args) -> str:
    return numbers(*(x for place in gpu.placements(a[3], n.privileged(s)) for x in place))


def _instance_info(_n: SimNode, _s: Session, gpu: SimGpu, a: Args) -> str:
    found = gpu.instance(a[1])
    return numbers(found.id, found.profile, found.start, found.size)


def _instance_by_id(_n: SimNode, _s: Session, gpu: SimGpu, a: Args) -> str:
    return str(gpu.by_id(a[3]).id)


def _compute_row(gpu: SimGpu, owner: Profile, c: ComputeProfile) -> str:
    sm = figures.compute_sm(gpu.family_table.family, owner, c)
    caps = COMPUTE_CAPABILITY_GFX if owner.gfx else 0
    return numbers(c.id, c.compute_slices, c.max_instances, sm, *engines(owner), caps) + f"|MIG {c.name}"


def _compute_profile_info(_n: SimNode, _s: Session, gpu: SimGpu, a: Args) -> str:
    inside = SimInstance(gpu, a[1])
    return _compute_row(gpu, inside.profile, inside.profile_at(a[3], a[4]))


def _compute_info(_n: SimNode, _s: Session, gpu: SimGpu, a: Args) -> str:
    found = SimInstance(gpu, a[1]).one(a[2])
    return numbers(found.id, found.profile, found.start, found.size)


def _compute_by_id(_n: SimNode, _s: Session, gpu: SimGpu, a: Args) -> str:
    return str(SimInstance(gpu, a[1]).one(a[3], codes.NOT_FOUND).id)


MIG_READS: dict[str, DeviceCall] = {
    "DeviceGetMigMode": _mig_mode,
    "DeviceGetMaxMigDeviceCount": lambda _n, _s, gpu, _a: str(gpu.max_mig_devices()),
    "DeviceGetMigDeviceHandleByIndex": _mig_handle,
    "DeviceGetGpuInstanceProfileInfo": _profile_info,
    "DeviceGetGpuInstanceProfileInfoById": _profile_info_by_id,
    "DeviceGetGpuInstancePossiblePlacements": _placements,
    "DeviceGetGpuInstanceRemainingCapacity": lambda n, s, gpu, a: str(gpu.remaining(a[3], n.privileged(s))),
    "DeviceGetGpuInstances": lambda n, s, gpu, a: numbers(*gpu.listed(a[3], n.privileged(s))),
    "DeviceGetGpuInstanceById": _instance_by_id,
}
"""Reads whose address is a GPU."""

INSTANCE_READS: dict[str, DeviceCall] = {
    "GpuInstanceGetInfo": _instance_info,
    "GpuInstanceGetComputeInstanceProfileInfo": _compute_profile_info,
    "GpuInstanceGetComputeInstanceRemainingCapacity": lambda _n, _s, g, a: str(SimInstance(g, a[1]).remaining(a[3])),
    "GpuInstanceGetComputeInstancePossiblePlacements": lambda _n, _s, g, a: numbers(
        *(x for place in SimInstance(g, a[1]).placements(a[3]) for x in place)
    ),
    "GpuInstanceGetComputeInstances": lambda _n, _s, g, a: numbers(*SimInstance(g, a[1]).listed(a[3])),
    "GpuInstanceGetComputeInstanceById": _compute_by_id,
    "ComputeInstanceGetInfo": _compute_info,
}
"""Reads whose address is a GPU instance or a compute instance."""


# -- writing


def _slices(gpu: SimGpu, profile_id: int) -> int:
    profile = gpu.table.family.by_id.get(profile_id) if gpu.table else None
    return profile.compute_slices if profile else 1


def _set_mode(node: SimNode, session: Session, a: Args) -> str:
    gpu = node.gpu(a[0])
    before = gpu.state.mig
    changes = gpu.table is not None and a[3] in (0, 1) and bool(a[3]) != before
    busy = changes and not session.hand and node.faults.mode_busy(a[0], node.world.now())
    others = node.others(session)

    def act(g: SimGpu) -> int:
        return g.set_mode(a[3], others, node.privileged(session), busy)

    return str(node.write(session, Call("DeviceSetMigMode", a[0]), act, "mode" if changes else ""))


def _create(node: SimNode, session: Session, a: Args) -> str:
    place = (a[4], a[5]) if len(a) > 4 else None
    name = "DeviceCreateGpuInstanceWithPlacement" if place else "DeviceCreateGpuInstance"
    call = Call(name, a[0], profile=a[3], place=f"{place[0]}:{place[1]}" if place else "")

    def act(g: SimGpu) -> int:
        return g.create(a[3], place, node.privileged(session))

    return str(node.write(session, call, act, "create", _slices(node.gpu(a[0]), a[3])))


def _destroy(node: SimNode, session: Session, a: Args) -> str:
    def act(g: SimGpu) -> int:
        g.destroy(a[1], node.privileged(session))
        return a[1]

    gpu = node.gpu(a[0])
    slices = next((_slices(gpu, i.profile) for i in gpu.state.instances if i.id == a[1]), 1)
    node.write(session, Call("GpuInstanceDestroy", a[0], a[1]), act, "destroy", slices)
    return ""


def _create_compute(node: SimNode, session: Session, a: Args) -> str:
    place = (a[4], a[5]) if len(a) > 4 else None
    name = "GpuInstanceCreateComputeInstanceWithPlacement" if place else "GpuInstanceCreateComputeInstance"
    call = Call(name, a[0], a[1], profile=a[3], place=f"{place[0]}:{place[1]}" if place else "")

    def act(g: SimGpu) -> int:
        return SimInstance(g, a[1]).create(a[3], place, node.privileged(session))

    return str(node.write(session, call, act, "create-compute", _compute_slices(node.gpu(a[0]), a[1])))


def _destroy_compute(node: SimNode, session: Session, a: Args) -> str:
    def act(g: SimGpu) -> int:
        SimInstance(g, a[1]).destroy(a[2], node.privileged(session))
        return a[2]

    slices = _compute_slices(node.gpu(a[0]), a[1])
    node.write(session, Call("ComputeInstanceDestroy", a[0], a[1], a[2]), act, "destroy-compute", slices)
    return ""


def _compute_slices(gpu: SimGpu, gi: int) -> int:
    return next((_slices(gpu, i.profile) for i in gpu.state.instances if i.id == gi), 1)


def _persistence(node: SimNode, session: Session, a: Args) -> str:
    def act(g: SimGpu) -> int:
        if not node.privileged(session):
            raise Refused(codes.NO_PERMISSION)
        if a[3] not in (0, 1):
            raise Refused(codes.INVALID_ARGUMENT)
        g.state.persistence = bool(a[3])
        return -1

    node.write(session, Call("DeviceSetPersistenceMode", a[0]), act)
    return ""


def reset(node: SimNode, session: Session, a: Args) -> str:
    """What ``nvidia-smi -r`` on that GPU asks of the kernel: not an NVML call, and no session is needed."""

    def act(g: SimGpu) -> int:
        g.reset(bool(node.sessions), node.privileged(session))
        node.faults.after_reset(a[0])
        return -1

    node.write(session, Call("DeviceReset", a[0]), act, "reset")
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
