"""Passthrough: when a whole GPU may be handed out, when it must be taken back, and what it is then."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from aliquot.core.model.catalog import Family
from aliquot.core.model.desired import DesiredGpu
from aliquot.core.model.inventory import Gpu, GpuVirtualization, Inventory, Mig, MigMode
from aliquot.core.model.plan import Blocker, Policy
from aliquot.core.planner import blockers as blocked
from aliquot.core.planner.restore_point import VFIO
from aliquot.core.planner.rules import RuleRefusal
from aliquot.core.planner.vgpu import blockers as blocking

if TYPE_CHECKING:
    from aliquot.core.planner.vgpu.gpu_mode import Goal, Task

replace = msgspec.structs.replace


def must_reclaim(gpu: Gpu, desired_gpu: DesiredGpu) -> bool:
    """Whether a wish for a GPU that is handed out needs it here."""
    was_mig = gpu.virtual is not None and gpu.virtual.was_mig
    requested = (
        desired_gpu.vgpus
        or desired_gpu.functions
        or desired_gpu.mixed_size
        or desired_gpu.vfio_bound
        or (desired_gpu.instances and desired_gpu.mig is not False)
    )
    return (
        desired_gpu.passthrough is False
        or bool(requested)
        or (desired_gpu.mig is not None and desired_gpu.mig != was_mig)
    )


def passthrough_interrupted(gpu: Gpu) -> bool:
    """Whether a GPU that is handed out has no driver at all: a kill between two writes left it so."""
    return gpu.passthrough and gpu.virtual is not None and gpu.virtual.driver == ""


def reclaimed(gpu: Gpu, family: Family | None) -> Gpu:
    """What a GPU will be after it is taken back: nothing on it, MIG mode as it was where the family keeps the mode."""
    virtual = gpu.virtual or GpuVirtualization()
    on = virtual.was_mig and family is not None and family.mode.mode_survives_reboot
    mode: MigMode = "enabled" if on else "disabled"
    return replace(
        gpu,
        passthrough=False,
        instances=(),
        vgpus=(),
        holders=(),
        mig=Mig(gpu.mig.capable, mode, mode),
        virtual=replace(virtual, driver="nvidia", functions=(), mixed_size=False, was_mig=False),
    )


def foreign_devices(gpu: Gpu) -> tuple[str, ...]:
    """What of the GPU's IOMMU group would stand in the way: its own virtual functions are switched off before."""
    virtual = gpu.virtual or GpuVirtualization()
    own = {*virtual.addresses, *(f.pci for f in virtual.functions)}
    return tuple(str(m) for m in virtual.group_peers if m.pci not in own)


def passthrough_blocker(inventory: Inventory, gpu: Gpu, desired_gpu: DesiredGpu, policy: Policy) -> Blocker | None:
    """Why the whole GPU cannot be handed out."""
    blocker = _vfio_blocker(inventory, gpu, "passthrough")
    if blocker is not None:
        return blocker
    others = foreign_devices(gpu)
    if others:
        return blocking.foreign_group(gpu, others)
    active = _active_functions(gpu)
    mentioned = desired_gpu.vgpus is not None or desired_gpu.functions is False
    if active and not mentioned and policy.held != "force":
        holders = [h for v in gpu.vgpus for h in v.holders]
        holders += [h for f in (gpu.virtual or GpuVirtualization()).functions for h in f.holders if h not in holders]
        next_step = f"aliquot vgpu disable {gpu.pci}"
        return blocking.functions_in_use(gpu, "it cannot be handed out", holders, active, next_step)
    if gpu.holders and policy.held == "refuse":
        return blocked.busy(gpu, "it cannot be handed out")
    return None


def _vfio_blocker(inventory: Inventory, gpu: Gpu, what: str) -> Blocker | None:
    """What this machine lacks for handing devices to virtual machines."""
    if inventory.host is None or not inventory.host.iommu:
        return blocking.no_iommu(gpu, what)
    return None if inventory.host.vfio else blocking.no_vfio(gpu)


def _active_functions(gpu: Gpu) -> Sequence[str]:
    """What is at work on the GPU's virtual functions (or on the GPU itself, where it carries vGPUs)."""
    vgpus = [f"{v.type} on {v.function}" for v in gpu.vgpus]
    carrying = {v.function for v in gpu.vgpus}
    functions = (gpu.virtual or GpuVirtualization()).functions
    return vgpus + [f.pci for f in functions if f.pci not in carrying and (f.holders or f.driver == VFIO)]


def host_blocker(task: Task, goal: Goal, switching_on: bool) -> Blocker | None:
    """What this machine lacks for vGPUs and virtual functions."""
    host, virtual = task.inventory.host, task.virtual
    making = bool(task.items) and not _wanted_vgpus_exist(task)
    if goal.vfio_bound - {f.pci for f in virtual.functions if f.driver == VFIO}:
        blocker = _vfio_blocker(task.inventory, task.gpu, "handing out virtual functions")
        if blocker is not None:
            return blocker
        if virtual.framework == "vendor-vfio":
            why = f"{VFIO} takes no virtual function of vendor-specific VFIO: a virtual machine has it as it is"
            return blocking.refused(task.gpu, RuleRefusal("NO_FUNCTION", why), f"aliquot vgpu list {task.gpu.pci}")
    if not making and not switching_on:
        return None
    if task.gpu.virtual is None:
        return blocking.no_driver(task.gpu, "the kernel was not asked about it")
    if host is not None and host.vgpu_manager is False:
        return blocking.no_driver(task.gpu, "its driver is the ordinary one, without the vGPU manager")
    # What vfio-pci has shows nothing: whether its own driver offers vGPUs is seen once that has it back.
    in_passthrough = task.inventory.gpu(task.gpu.pci).passthrough
    unseen = virtual.framework == "" and (virtual.total == 0 or virtual.enabled) and not in_passthrough
    if making and unseen and not (virtual.enabled and host is not None and host.vgpu_manager):
        return blocking.no_driver(task.gpu, "no vGPU driver is at work on it")
    if making and virtual.total and host is not None and not host.iommu:
        return blocking.no_iommu(task.gpu, "a vGPU on a virtual function")
    return None


def unlisted_type_blocker(task: Task, names: Sequence[str]) -> Blocker | None:
    """A new vGPU of a type that the driver's own list shows it does not have."""
    if not names or task.virtual.creatable is None:
        return None
    from aliquot.core.planner.vgpu.creatable_types import unlisted_types as of

    reasons = of(task.inventory, task.gpu)
    found = next((name for name in names if name in reasons), None)
    return blocking.refused(task.gpu, RuleRefusal("SERIES", reasons[found])) if found is not None else None


def _wanted_vgpus_exist(task: Task) -> bool:
    """Whether as many vGPUs of each wanted type exist as are wanted."""
    have = [v.type_id for v in task.gpu.vgpus]
    return all(have.count(each.id or 0) >= n for each, n in task.types)
