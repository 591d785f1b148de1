"""Drift of vGPUs, virtual functions and passthrough from the desired state: every difference, as a sentence."""

from __future__ import annotations

from collections import Counter

import msgspec

from aliquot.core.model.desired import DesiredGpu, DesiredVgpu
from aliquot.core.model.inventory import Gpu, GpuVirtualization, Vgpu
from aliquot.core.model.plan import Drift
from aliquot.core.model.vgpu_scheduler import instances_to_switch
from aliquot.core.model.vgpu_scheduler import meets as meets_scheduler
from aliquot.core.planner.restore_point import VFIO
from aliquot.core.planner.vgpu.instance_scheduler import spared_instances
from aliquot.core.planner.vgpu.naming import counts_text


def passthrough_drift(gpu: Gpu, desired_gpu: DesiredGpu) -> list[Drift] | None:
    """Return the drift in passthrough. None if the rest of the request must be compared, too."""
    if desired_gpu.passthrough and passthrough_interrupted(gpu):
        return [Drift(gpu.pci, "passthrough", f"GPU {gpu.pci} has no driver, but should have {VFIO}", VFIO, "")]
    if desired_gpu.passthrough and not gpu.passthrough:
        text = f"GPU {gpu.pci} is not passed through, but should be"
        return [Drift(gpu.pci, "passthrough", text, "passthrough", gpu.virtual.driver if gpu.virtual else "")]
    if not gpu.passthrough:
        return None
    if desired_gpu.passthrough or not must_reclaim(gpu, desired_gpu):
        return []
    return [Drift(gpu.pci, "passthrough", f"GPU {gpu.pci} is passed through, but should not be", "", "passthrough")]


def must_reclaim(gpu: Gpu, desired_gpu: DesiredGpu) -> bool:
    """Report whether a request needs the driver for a GPU that is passed through."""
    was_mig = gpu.virtual is not None and gpu.virtual.was_mig
    requested = (
        desired_gpu.vgpus
        or desired_gpu.functions
        or desired_gpu.mixed_size
        or desired_gpu.scheduler
        or desired_gpu.vfio_bound
        or (desired_gpu.instances and desired_gpu.mig is not False)
    )
    return (
        desired_gpu.passthrough is False
        or bool(requested)
        or (desired_gpu.mig is not None and desired_gpu.mig != was_mig)
    )


def passthrough_interrupted(gpu: Gpu) -> bool:
    """Report whether a passed-through GPU has no driver at all, as after a kill between two writes."""
    return gpu.passthrough and gpu.virtual is not None and gpu.virtual.driver == ""


def sharing_drift(gpu: Gpu, desired_gpu: DesiredGpu) -> list[Drift]:
    """Return differences in virtual functions, mixed-size mode, scheduler and vGPUs."""
    virtual = gpu.virtual or GpuVirtualization()
    out: list[Drift] = []
    if desired_gpu.functions is not None and desired_gpu.functions != virtual.enabled:
        want, have = ("on", "off") if desired_gpu.functions else ("off", "on")
        text = f"its virtual functions are {have}, but should be {want}"
        out.append(Drift.on(gpu.pci, "functions", text, want, have))
    out += _mixed_size_drift(gpu, virtual, desired_gpu.mixed_size)
    out += _scheduler_drift(gpu, virtual, desired_gpu)
    if desired_gpu.vfio_bound is not None:
        out += _binding_drift(gpu, virtual, set(desired_gpu.vfio_bound))
    if desired_gpu.vgpus is not None:
        out += _vgpu_drift(gpu, desired_gpu.vgpus)
    return out


def _mixed_size_drift(gpu: Gpu, virtual: GpuVirtualization, wanted: bool | None) -> list[Drift]:
    """Compare mixed-size mode, in MIG mode that of each GPU instance. An unknown mode of a GPU instance differs only
    from a request for it, as in plans.
    """
    modes: set[bool | msgspec.UnsetType] = set() if virtual.mixed_size is None else {virtual.mixed_size}
    if gpu.mig.enabled and gpu.instances:
        modes = {i.mixed_size for i in gpu.instances}
    differing = [m for m in modes if bool(m) != wanted]
    if wanted is None or not differing:
        return []
    want, have = ("on", "off") if wanted else ("off", "on")
    state = f"is {have} in some GPU instances" if len(modes) > 1 else f"is {have}"
    if {bool(wanted), *differing} <= {True, msgspec.UNSET}:
        state, have = "cannot be read", "unknown"
    return [Drift.on(gpu.pci, "mixed-size", f"mixed-size mode {state}, but should be {want}", want, have)]


def _scheduler_drift(gpu: Gpu, virtual: GpuVirtualization, desired_gpu: DesiredGpu) -> list[Drift]:
    """Compare the scheduler of the GPU, or of each GPU instance that has one."""
    out: list[Drift] = []
    wanted = desired_gpu.scheduler or ""
    if wanted and virtual.scheduler and not meets_scheduler(virtual.scheduler, wanted):
        text = f"its scheduler is {virtual.scheduler}, but should be {wanted}"
        out.append(Drift.on(gpu.pci, "scheduler", text, wanted, virtual.scheduler))
    switched = instances_to_switch(gpu, wanted) - spared_instances(gpu, desired_gpu)
    for each in (i for i in gpu.instances if i.id in switched):
        text = f"the scheduler of GPU instance {each.id} ({each.profile}) is {each.scheduler}, but should be {wanted}"
        out.append(Drift.on(gpu.pci, "scheduler", text, wanted, str(each.scheduler)))
    return out


def _binding_drift(gpu: Gpu, virtual: GpuVirtualization, wanted: set[str]) -> list[Drift]:
    bound = {f.pci for f in virtual.functions if f.driver == VFIO}
    missing = [f"virtual function {pci} is not bound to {VFIO}, but should be" for pci in sorted(wanted - bound)]
    extra = [f"virtual function {pci} is bound to {VFIO}, but should not be" for pci in sorted(bound - wanted)]
    want, have = ", ".join(sorted(wanted)), ", ".join(sorted(bound))
    return [Drift.on(gpu.pci, "bound", text, want, have) for text in missing + extra]


def _vgpu_drift(gpu: Gpu, requests: tuple[DesiredVgpu, ...]) -> list[Drift]:
    """Compare vGPUs. Only its own vGPU meets a request for a function or a UUID, any vGPU of the type meets others."""
    left = list(gpu.vgpus)
    missing: list[DesiredVgpu] = []
    for request in sorted(requests, key=_precision):
        found = next((v for v in left if meets(v, request)), None)
        if found is None:
            missing.append(request)
        else:
            left.remove(found)
    if not missing and not left:
        return []
    want, have = counts_text(Counter(w.type for w in requests)), counts_text(Counter(v.type for v in gpu.vgpus))
    out = _parameter_drift(gpu, missing, left)
    for request in [w for w in missing if w.function]:
        other = next((v for v in left if v.function == request.function and v.type_id != request.type_id), None)
        if other is not None and sum(v.function == request.function for v in gpu.vgpus) == 1:
            missing.remove(request)
            left.remove(other)
            text = f"{request.function} has {other.type}, but should have {request.type}"
            out.append(Drift.on(gpu.pci, "vgpu-type", text, request.type, other.type))
    for request_text, n in Counter(_request_text(w) for w in missing).items():
        text = f"{n} x {request_text} missing"
        out.append(Drift.on(gpu.pci, "vgpu-missing", text, want, have))
    for vgpu in left:
        text = f"{vgpu.type} on {vgpu.function} should not be there"
        out.append(Drift.on(gpu.pci, "vgpu-extra", text, want, have))
    return out


def _precision(request: DesiredVgpu) -> tuple[bool, bool, bool, bool]:
    """Return a sort key: what fewer vGPUs can meet comes first, so that nothing else takes its vGPU."""
    return not request.function, not request.uuid, request.placement is None, request.parameters is None


def _parameter_drift(gpu: Gpu, missing: list[DesiredVgpu], left: list[Vgpu]) -> list[Drift]:
    """Return a drift for each vGPU that lacks only the requested plugin parameters, and take both off the lists."""
    out: list[Drift] = []
    for request in tuple(missing):
        plain = msgspec.structs.replace(request, parameters=None)
        found = next((v for v in left if meets(v, plain)), None)
        if found is None:
            continue
        missing.remove(request)
        left.remove(found)
        want, have = request.parameters or "none", found.parameters or "none"
        text = f"{found.type} on {found.function} has plugin parameters {have}, but should have {want}"
        out.append(Drift.on(gpu.pci, "vgpu-parameters", text, want, have))
    return out


def meets(vgpu: Vgpu, request: DesiredVgpu) -> bool:
    """Report whether a vGPU is what was requested."""
    return (
        vgpu.type_id == request.type_id
        and request.function in ("", vgpu.function)
        and (not request.uuid or vgpu.uuid in ("", request.uuid))
        and (request.placement is None or vgpu.placement in (None, request.placement))
        and request.parameters in (None, vgpu.parameters)
    )


def _request_text(request: DesiredVgpu) -> str:
    where = f" on {request.function}" if request.function else ""
    name = f" with UUID {request.uuid}" if request.uuid and not request.function else ""
    return request.type + where + name
