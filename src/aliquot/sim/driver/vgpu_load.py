"""The vGPUs that VMs run with, and their load: what NVML answers about a vGPU instance.

The load model: each VM wants the share ``busy`` of the GPU. If all want more than there is, every share is reduced in
proportion, as the best-effort scheduler does. The other engines and the memory follow from that share (estimates).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import NamedTuple

from aliquot.sim import codes
from aliquot.sim.codes import NvmlRefusalError
from aliquot.sim.driver.gpu import SimGpu
from aliquot.sim.driver.nvml_calls import MIB, Args, DeviceCall, SystemCall, numbers
from aliquot.sim.kernel import rules, vms
from aliquot.sim.node import SimNode
from aliquot.sim.session import SimSession
from aliquot.sim.state import VgpuState, VmState

FIRST_NUMBER = 3_251_634_176
"""The first vGPU number on the hosts whose listings are public."""
VGPUS_OF_GPU = 64
LICENSED, UNLICENSED_RESTRICTED = 5, 3
STATES = {LICENSED: "licensed", UNLICENSED_RESTRICTED: "unlicensed-restricted"}
_EXPIRES = (2099, 1, 1, 0, 0, 0)
_EXPIRY_NOT_AVAILABLE, _EXPIRY_VALID = 0, 2
_EXPIRES_AT = 4_070_908_800.0
"""``_EXPIRES`` in seconds of wall time."""


class RunningVgpu(NamedTuple):
    """A vGPU that a VM has open."""

    number: int
    gpu: SimGpu
    vgpu: VgpuState
    vm: VmState

    @property
    def uuid(self) -> str:
        return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{self.vm.pid}/{self.vgpu.uuid or self.vgpu.function}"))

    @property
    def vm_uuid(self) -> str:
        return str(uuid.uuid5(uuid.NAMESPACE_OID, self.vm.name))

    @property
    def used_mib(self) -> int:
        kind = rules.type_by_id(self.gpu.state, self.vgpu.type_id)
        return round((kind.fb_mib if kind is not None else 0) * (0.125 + self.vm.busy / 2))


def running(node: SimNode, gpu: SimGpu) -> tuple[RunningVgpu, ...]:
    """Return the running vGPUs of a GPU."""
    return tuple(_running(node, gpu))


def _running(node: SimNode, gpu: SimGpu) -> Iterator[RunningVgpu]:
    for position, vgpu in enumerate(gpu.state.vgpus):
        vm = vms.open_on(node, vgpu.uuid or vgpu.function)
        if vm is not None:
            yield RunningVgpu(FIRST_NUMBER + VGPUS_OF_GPU * gpu.state.index + position, gpu, vgpu, vm)


def percents(found: tuple[RunningVgpu, ...]) -> tuple[tuple[int, int, int, int], ...]:
    """Return the percentages of multiprocessors, memory accesses, encoder and decoder of each vGPU of one GPU."""
    factor = 1 / max(1.0, sum(each.vm.busy for each in found))
    shares = [each.vm.busy * factor for each in found]
    return tuple((round(100 * s), round(40 * s), round(20 * s), round(10 * s)) for s in shares)


def _checked(gpu: SimGpu) -> None:
    if not rules.vgpu_framework(gpu.state):
        raise NvmlRefusalError(codes.NOT_SUPPORTED)


def _active(node: SimNode, _s: SimSession, gpu: SimGpu, _a: Args) -> str:
    _checked(gpu)
    return numbers(*(each.number for each in running(node, gpu)))


def _utilization(node: SimNode, _s: SimSession, gpu: SimGpu, _a: Args) -> str:
    """Return number, time stamp and percentages of each running vGPU. Not for MIG-backed ones (an estimate: NVML has no
    utilization rates in MIG mode either).
    """
    _checked(gpu)
    if gpu.state.mig:
        raise NvmlRefusalError(codes.NOT_SUPPORTED)
    found = running(node, gpu)
    now = round(1e6 * node.environment.now())
    return numbers(*(n for each, p in zip(found, percents(found), strict=True) for n in (each.number, now, *p)))


def _instance(node: SimNode, args: Args) -> RunningVgpu:
    """Return a vGPU by its number. Raises INVALID_ARGUMENT once its VM has ended (an estimate)."""
    found = next((each for gpu in node.visible for each in running(node, gpu) if each.number == args[0]), None)
    if found is None:
        raise NvmlRefusalError(codes.INVALID_ARGUMENT)
    return found


def _mdev(node: SimNode, _s: SimSession, args: Args, _t: str) -> str:
    found = _instance(node, args)
    if not found.vgpu.uuid:
        raise NvmlRefusalError(codes.NOT_SUPPORTED)
    return "|" + found.vgpu.uuid


def _license(node: SimNode, _s: SimSession, args: Args, _t: str) -> str:
    """Return whether the guest is licensed, the state, and the expiry with its status."""
    vm = _instance(node, args).vm
    if vm.licensed:
        return numbers(1, LICENSED, *_EXPIRES, _EXPIRY_VALID)
    return numbers(0, UNLICENSED_RESTRICTED, *[0] * len(_EXPIRES), _EXPIRY_NOT_AVAILABLE)


def vgpu_usage(node: SimNode) -> list[dict[str, object]]:
    """Return the answer to the call ``VgpuUsage``: every running vGPU."""
    rows: list[dict[str, object]] = []
    for gpu in node.visible:
        found = () if gpu.state.lost or not rules.vgpu_framework(gpu.state) else running(node, gpu)
        for each, percent in zip(found, percents(found), strict=True):
            rows.append(_row(each, percent))
    return rows


def _row(each: RunningVgpu, percent: tuple[int, int, int, int]) -> dict[str, object]:
    shares = dict(zip(("compute", "memory_bandwidth", "encoder", "decoder"), percent, strict=True))
    return {
        "gpu": each.gpu.state.pci,
        "type_id": each.vgpu.type_id,
        "uuid": each.uuid,
        "mdev": each.vgpu.uuid,
        "vm": each.vm_uuid,
        **{name: None if each.gpu.state.mig else value / 100 for name, value in shares.items()},
        "memory_used_mib": each.used_mib,
        "license": STATES[LICENSED if each.vm.licensed else UNLICENSED_RESTRICTED],
        "license_expires": _EXPIRES_AT if each.vm.licensed else None,
    }


VGPU_LOAD_READS: dict[str, DeviceCall] = {
    "DeviceGetActiveVgpus": _active,
    "DeviceGetVgpuUtilization": _utilization,
}
VGPU_INSTANCE_CALLS: dict[str, SystemCall] = {
    "VgpuInstanceGetType": lambda node, _s, args, _t: str(_instance(node, args).vgpu.type_id),
    "VgpuInstanceGetUUID": lambda node, _s, args, _t: "|" + _instance(node, args).uuid,
    "VgpuInstanceGetMdevUUID": _mdev,
    "VgpuInstanceGetVmID": lambda node, _s, args, _t: "|" + _instance(node, args).vm_uuid,
    "VgpuInstanceGetFbUsage": lambda node, _s, args, _t: str(_instance(node, args).used_mib * MIB),
    "VgpuInstanceGetLicenseStatus": lambda node, _s, args, _t: str(int(_instance(node, args).vm.licensed)),
    "VgpuInstanceGetLicenseInfo": _license,
}
