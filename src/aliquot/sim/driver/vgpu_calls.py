"""The vGPU calls of the driver: mixed-size mode, which NVML calls heterogeneous."""

from __future__ import annotations

from aliquot.sim import codes
from aliquot.sim.codes import NvmlRefusalError
from aliquot.sim.driver.gpu import SimGpu
from aliquot.sim.driver.mig_calls import WriteCall
from aliquot.sim.driver.nvml_calls import Args, DeviceCall, numbers
from aliquot.sim.kernel import pci, rules
from aliquot.sim.node import DriverWrite, SimNode
from aliquot.sim.session import SimSession


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
        gpu.state.mixed = bool(args[3])
        return -1

    node.write(session, DriverWrite("DeviceSetVgpuHeterogeneousMode", args[0]), apply)
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


VGPU_READS: dict[str, DeviceCall] = {
    "DeviceGetVgpuHeterogeneousMode": _mode,
    "DeviceGetSupportedVgpus": _supported,
    "DeviceGetCreatableVgpus": _creatable,
}
VGPU_WRITES: dict[str, WriteCall] = {"DeviceSetVgpuHeterogeneousMode": _set_mode}
