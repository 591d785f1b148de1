"""The usage of a simulated GPU by its processes: memory, and the share of busy multiprocessors.

GPM (Hopper and later) computes the share between two samples. A simulated sample is the share at that moment, and the
result is the mean of both. This estimates what the hardware counts continuously.
"""

from __future__ import annotations

from aliquot.sim import codes
from aliquot.sim.codes import NvmlRefusalError
from aliquot.sim.driver import sensor_values as sensors
from aliquot.sim.driver.compute import SimInstance
from aliquot.sim.driver.gpu import SimGpu
from aliquot.sim.node import SimNode
from aliquot.sim.state import WHOLE, ProcessState

_GPM = ("hopper", "blackwell")
_RESERVED_MIB = 500
_RESERVED_IN_INSTANCE_MIB = 12


def memory_mib(gpu: SimGpu, gi: int, ci: int) -> tuple[int, int, int, int]:
    """Return total, reserved, free and used MiB of the whole GPU or of a MIG device's GPU instance, whose compute
    instances share one memory.
    """
    if gi == WHOLE:
        total, reserved = gpu.state.memory_mib, _RESERVED_MIB
    else:
        instance = SimInstance(gpu, gi)
        instance.one(ci)
        total = sensors.instance_memory_mib(gpu.family_table.family, instance.profile, gpu.state.memory_mib)
        reserved = _RESERVED_IN_INSTANCE_MIB
    used = min(total - reserved, sum(p.memory_mib for p in gpu.state.processes if gi in (WHOLE, p.gi)))
    return total, reserved, total - reserved - used, used


def rates(gpu: SimGpu) -> tuple[int, int]:
    """Return the percentage of time in which the GPU computed, and in which it accessed memory (an estimate: a fifth of
    that). Raises NOT_SUPPORTED in MIG mode, as the driver does.
    """
    if gpu.state.mig:
        raise NvmlRefusalError(codes.NOT_SUPPORTED)
    percent = round(100 * _together(gpu.state.processes))
    return percent, percent // 5


def has_gpm(gpu: SimGpu) -> bool:
    return gpu.state.architecture in _GPM


def busy(gpu: SimGpu, gi: int) -> float:
    """Return the share of busy multiprocessors of a GPU instance or (WHOLE) of the GPU. Raises NOT_SUPPORTED on GPUs
    without GPM, INVALID_ARGUMENT for an instance that does not exist.
    """
    if not has_gpm(gpu):
        raise NvmlRefusalError(codes.NOT_SUPPORTED)
    if not gpu.state.mig:
        if gi != WHOLE:
            raise NvmlRefusalError(codes.INVALID_ARGUMENT)
        return _together(gpu.state.processes)
    if gi != WHOLE:
        return _busy_in(gpu, gi)
    slices = gpu.family_table.family.compute_slices
    return (
        sum(_busy_in(gpu, i.id) * SimInstance(gpu, i.id).profile.compute_slices for i in gpu.state.instances) / slices
    )


def _busy_in(gpu: SimGpu, gi: int) -> float:
    """Sum the shares of the compute instances, weighted by their part of the GPU instance."""
    instance = SimInstance(gpu, gi)
    whole = instance.profile.compute_slices
    inside = [p for p in gpu.state.processes if p.gi == gi]
    return sum(
        _together([p for p in inside if p.ci == c.id]) * instance.compute_profile(c.profile).compute_slices / whole
        for c in gpu.instance(gi).compute
    )


def _together(processes: list[ProcessState]) -> float:
    return min(1.0, sum(p.busy for p in processes))


def hold(gpu: SimGpu, process: ProcessState) -> None:
    """Add a simulated process to its instance. Raises INVALID_ARGUMENT for a compute instance that does not exist."""
    if process.gi != WHOLE:
        SimInstance(gpu, process.gi).one(process.ci)
    gpu.state.processes = [*gpu.state.processes, process]


def usage(node: SimNode) -> list[dict[str, object]]:
    """Return the answer to the call ``Usage``: all GPU instances with a MIG device, and all whole GPUs outside MIG
    mode.
    """
    return [row for gpu in node.visible if not gpu.state.lost for row in _rows(gpu)]


def _rows(gpu: SimGpu) -> list[dict[str, object]]:
    if not gpu.state.mig:
        share = busy(gpu, WHOLE) if has_gpm(gpu) else rates(gpu)[0] / 100
        return [_row(gpu, None, "", memory_mib(gpu, WHOLE, WHOLE), share, "gpm" if has_gpm(gpu) else "nvml")]
    found = []
    for instance in gpu.state.instances:
        if instance.compute:
            memory = memory_mib(gpu, instance.id, instance.compute[0].id)
            busy_share = busy(gpu, instance.id) if has_gpm(gpu) else None
            source = "gpm" if has_gpm(gpu) else ""
            found.append(_row(gpu, instance.id, SimInstance(gpu, instance.id).profile.name, memory, busy_share, source))
    return found


def _row(
    gpu: SimGpu, gi: int | None, profile: str, memory: tuple[int, int, int, int], share: float | None, source: str
) -> dict[str, object]:
    return {
        "gpu": gpu.state.pci,
        "instance": gi,
        "profile": profile,
        "memory_used_mib": memory[3],
        "memory_total_mib": memory[0],
        "compute": None if share is None else round(share, 4),
        "source": source,
    }
