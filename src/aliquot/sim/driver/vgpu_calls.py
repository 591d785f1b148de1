"""The vGPU calls of the driver: mixed-size mode, which NVML calls heterogeneous, and the scheduler."""

from __future__ import annotations

from collections.abc import Iterable

from aliquot.sim import codes
from aliquot.sim.codes import NvmlRefusalError
from aliquot.sim.driver.gpu import SimGpu
from aliquot.sim.driver.mig_calls import WriteCall
from aliquot.sim.driver.nvml_calls import Args, DeviceCall, numbers
from aliquot.sim.kernel import pci, rules, vms
from aliquot.sim.node import DriverWrite, SimNode
from aliquot.sim.session import SimSession
from aliquot.sim.state import SchedulerState, VgpuState

_BEST_EFFORT, _, _FIXED = 1, 2, 3
_LOOSE, _STRICT = 1, 2
_ALWAYS_STRICT = 595
"""The first branch in which strict round robin cannot be turned off."""


def _mode(_n: SimNode, _s: SimSession, gpu: SimGpu, _a: Args) -> str:
    if not rules.mixed_possible(gpu.state):
        raise NvmlRefusalError(codes.NOT_SUPPORTED)
    return str(int(gpu.state.mixed))


def _set_mode(node: SimNode, session: SimSession, args: Args) -> str:
    """Set mixed-size mode. Raises NOT_SUPPORTED with MIG mode on, on Turing and older, and without the vGPU host
    driver. Raises IN_USE while a vGPU exists, and before virtual functions are enabled (nvml.h, NVIDIA's vGPU guide).
    """

    def apply(gpu: SimGpu) -> int:
        if not node.privileged(session):
            raise NvmlRefusalError(codes.NO_PERMISSION)
        if args[3] not in (0, 1):
            raise NvmlRefusalError(codes.INVALID_ARGUMENT)
        if not rules.mixed_possible(gpu.state):
            raise NvmlRefusalError(codes.NOT_SUPPORTED)
        if gpu.state.vgpus or not gpu.state.functions:
            raise NvmlRefusalError(codes.IN_USE)
        if args[3] and gpu.state.scheduler.policy == _FIXED:
            raise NvmlRefusalError(codes.NOT_SUPPORTED)
        gpu.state.mixed = bool(args[3])
        return -1

    node.write(session, DriverWrite("DeviceSetVgpuHeterogeneousMode", args[0]), apply)
    return ""


def _report(node: SimNode, found: SchedulerState, vgpus: Iterable[VgpuState]) -> str:
    """Return policy, strictness, averaging factor, time slice: all but the policy only while a VM has a vGPU."""
    active = any(vms.open_on(node, v.uuid or v.function) for v in vgpus)
    if found.policy == _BEST_EFFORT or not active:
        return numbers(found.policy, 0, 0, 0)
    return numbers(found.policy, found.strict, found.average if found.strict == _STRICT else 0, found.time_slice)


def _requested(node: SimNode, args: Args, mixed: bool) -> SchedulerState:
    """Return the requested scheduler from policy, strictness (0 default, 1 off, 2 on), time slice, frequency (0
    default). Raises NOT_SUPPORTED for another policy, for fixed share in mixed-size mode, and where strict round robin
    cannot be turned off (nvml.h; NVIDIA's vGPU guide). Values beyond the limits become the nearest.
    """
    policy, strict, time_slice, frequency = args[3:7]
    loose = strict == _LOOSE
    if policy not in (1, 2, 3) or (policy == _FIXED and mixed):
        raise NvmlRefusalError(codes.NOT_SUPPORTED)
    if loose and node.state.driver_major >= _ALWAYS_STRICT:
        raise NvmlRefusalError(codes.NOT_SUPPORTED)
    if loose:
        return SchedulerState(policy, _LOOSE, 0, min(max(time_slice or 2_000_000, 1_000_000), 30_000_000))
    return SchedulerState(policy, time_slice=1_000_000_000 // min(max(frequency or 480, 63), 960))


def _scheduler(node: SimNode, _s: SimSession, gpu: SimGpu, _a: Args) -> str:
    """Report the scheduler. Raises NOT_SUPPORTED with MIG mode on, and without the vGPU host driver."""
    if not rules.vgpu_framework(gpu.state) or gpu.state.mig:
        raise NvmlRefusalError(codes.NOT_SUPPORTED)
    return _report(node, gpu.state.scheduler, gpu.state.vgpus)


def _set_scheduler(node: SimNode, session: SimSession, args: Args) -> str:
    """Set the scheduler. Raises NOT_SUPPORTED while a vGPU exists, and as ``_requested``."""

    def apply(gpu: SimGpu) -> int:
        if not node.privileged(session):
            raise NvmlRefusalError(codes.NO_PERMISSION)
        state = gpu.state
        if not rules.vgpu_framework(state) or state.mig or state.vgpus:
            raise NvmlRefusalError(codes.NOT_SUPPORTED)
        state.scheduler = _requested(node, args, state.mixed)
        return -1

    node.write(session, DriverWrite("DeviceSetVgpuSchedulerState", args[0]), apply)
    return ""


def _instance_scheduler(node: SimNode, _s: SimSession, gpu: SimGpu, args: Args) -> str:
    """Report the scheduler of a GPU instance. Raises NOT_SUPPORTED if vGPUs cannot share it."""
    found = gpu.instance(args[1])
    if not rules.shared_instance(gpu.state, found):
        raise NvmlRefusalError(codes.NOT_SUPPORTED)
    return _report(node, found.scheduler, [v for v in gpu.state.vgpus if v.gi == found.id])


def _set_instance_scheduler(node: SimNode, session: SimSession, args: Args) -> str:
    """Set the scheduler of a GPU instance, until the instance is destroyed. Raises NOT_SUPPORTED if vGPUs cannot share
    it, while it has a vGPU, and as ``_requested`` (nvml.h).
    """

    def apply(gpu: SimGpu) -> int:
        if not node.privileged(session):
            raise NvmlRefusalError(codes.NO_PERMISSION)
        found = gpu.instance(args[1])
        if not rules.shared_instance(gpu.state, found) or any(v.gi == found.id for v in gpu.state.vgpus):
            raise NvmlRefusalError(codes.NOT_SUPPORTED)
        found.scheduler = _requested(node, args, found.mixed)
        return -1

    node.write(session, DriverWrite("GpuInstanceSetVgpuSchedulerState", args[0], args[1]), apply)
    return ""


def _supported(_n: SimNode, _s: SimSession, gpu: SimGpu, _a: Args) -> str:
    """Return the ids of this board's types. Raises NOT_SUPPORTED without the vGPU host driver."""
    if not rules.vgpu_framework(gpu.state):
        raise NvmlRefusalError(codes.NOT_SUPPORTED)
    return numbers(*(t.id or 0 for t in rules.types(gpu.state)))


def _creatable(_n: SimNode, _s: SimSession, gpu: SimGpu, _a: Args) -> str:
    """Return the ids of the types of which one more can be created now, on any function."""
    if not rules.vgpu_framework(gpu.state):
        raise NvmlRefusalError(codes.NOT_SUPPORTED)
    addresses = [pci.function_address(gpu.state, f.number) for f in gpu.state.functions] or [gpu.state.pci]
    found = {t.id or 0 for address in addresses for t in rules.creatable(gpu.state, address)}
    return numbers(*sorted(found))


def _instance_mode(_n: SimNode, _s: SimSession, gpu: SimGpu, args: Args) -> str:
    found = gpu.instance(args[1])
    if not rules.mixed_inside_possible(gpu.state):
        raise NvmlRefusalError(codes.NOT_SUPPORTED)
    return str(int(found.mixed))


def _set_instance_mode(node: SimNode, session: SimSession, args: Args) -> str:
    """Set mixed-size mode of a GPU instance. Raises NOT_SUPPORTED on chips that do not share an instance between vGPUs,
    and IN_USE while the instance has a vGPU. Source: NVML's changes in R575, open GPU kernel modules 595.
    """

    def apply(gpu: SimGpu) -> int:
        if not node.privileged(session):
            raise NvmlRefusalError(codes.NO_PERMISSION)
        if args[3] not in (0, 1):
            raise NvmlRefusalError(codes.INVALID_ARGUMENT)
        found = gpu.instance(args[1])
        if not rules.mixed_inside_possible(gpu.state):
            raise NvmlRefusalError(codes.NOT_SUPPORTED)
        if any(v.gi == found.id for v in gpu.state.vgpus):
            raise NvmlRefusalError(codes.IN_USE)
        if args[3] and found.scheduler.policy == _FIXED:
            raise NvmlRefusalError(codes.NOT_SUPPORTED)
        found.mixed = bool(args[3])
        return -1

    node.write(session, DriverWrite("GpuInstanceSetVgpuHeterogeneousMode", args[0], args[1]), apply)
    return ""


VGPU_READS: dict[str, DeviceCall] = {
    "DeviceGetVgpuHeterogeneousMode": _mode,
    "DeviceGetVgpuSchedulerState": _scheduler,
    "DeviceGetSupportedVgpus": _supported,
    "DeviceGetCreatableVgpus": _creatable,
}
VGPU_INSTANCE_READS: dict[str, DeviceCall] = {
    "GpuInstanceGetVgpuHeterogeneousMode": _instance_mode,
    "GpuInstanceGetVgpuSchedulerState": _instance_scheduler,
}
"""Reads whose address is a GPU instance."""
VGPU_WRITES: dict[str, WriteCall] = {
    "GpuInstanceSetVgpuHeterogeneousMode": _set_instance_mode,
    "GpuInstanceSetVgpuSchedulerState": _set_instance_scheduler,
    "DeviceSetVgpuHeterogeneousMode": _set_mode,
    "DeviceSetVgpuSchedulerState": _set_scheduler,
}
