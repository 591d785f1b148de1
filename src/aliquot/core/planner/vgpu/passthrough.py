"""Passthrough: when a whole GPU may be passed through, and its state after it is taken back.

A VM cannot use all GPUs on NVSwitch before Fabric Manager has activated a partition of the fabric. Aliquot does not
model fabric partitions: it neither knows them nor activates one. Requests that need one are refused. Sources:

- NVIDIA Fabric Manager user guide, "vGPU Virtualization Model" (a partition is activated before each VM starts, also
  for one vGPU) and "Shared NVSwitch Virtualization Model".
- NVIDIA AI Enterprise, "NVIDIA NVSwitch" (no MIG-backed vGPUs).
- NVIDIA/kubevirt-gpu-device-plugin#193 and NVIDIA/gpu-operator#2923 (CUDA error 802 on HGX H200).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from aliquot.core.model.catalog import Family
from aliquot.core.model.desired import DesiredGpu
from aliquot.core.model.inventory import Gpu, GpuVirtualization, Inventory, Mig, MigMode
from aliquot.core.model.plan import Blocker, Policy
from aliquot.core.model.structured_text import GpuPart, StructuredText
from aliquot.core.planner import blockers as blocked
from aliquot.core.planner.restore_point import VFIO
from aliquot.core.planner.rules import RuleRefusal
from aliquot.core.planner.vgpu import blockers as blocking

if TYPE_CHECKING:
    from aliquot.core.planner.vgpu.gpu_mode import Goal, Task

replace = msgspec.structs.replace


def reclaimed(gpu: Gpu, family: Family | None) -> Gpu:
    """Return a GPU as it will be after it is taken back.

    It is empty, and has its previous MIG mode if the family keeps the mode.
    """
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
    """Return the devices in the GPU's IOMMU group that block passthrough.

    Its own virtual functions do not count, because they are disabled before.
    """
    virtual = gpu.virtual or GpuVirtualization()
    own = {*virtual.addresses, *(f.pci for f in virtual.functions)}
    return tuple(str(m) for m in virtual.group_peers if m.pci not in own)


def passthrough_blocker(inventory: Inventory, gpu: Gpu, desired_gpu: DesiredGpu, policy: Policy) -> Blocker | None:
    """Return why the whole GPU cannot be passed through."""
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
        next_step = StructuredText("aliquot vgpu disable ", GpuPart(gpu.pci))
        return blocking.functions_in_use(gpu, "it cannot be passed through", holders, active, next_step)
    if gpu.holders and policy.held == "refuse":
        return blocked.busy(gpu, "it cannot be passed through")
    return None


def _vfio_blocker(inventory: Inventory, gpu: Gpu, what: str) -> Blocker | None:
    """Return what this host lacks for passing devices through."""
    if inventory.host is None or not inventory.host.iommu:
        return blocking.no_iommu(gpu, what)
    return None if inventory.host.vfio else blocking.no_vfio(gpu)


def _active_functions(gpu: Gpu) -> StructuredText:
    """List what uses the virtual functions of the GPU (or the GPU itself, if its vGPUs are mdevs)."""
    vgpus = [blocking.list_vgpus(gpu, [v]) for v in gpu.vgpus]
    carrying = {v.function for v in gpu.vgpus}
    functions = (gpu.virtual or GpuVirtualization()).functions
    others = [f.pci for f in functions if f.pci not in carrying and (f.holders or f.driver == VFIO)]
    return StructuredText.joined(", ", [*vgpus, *others])


def host_blocker(task: Task, goal: Goal, switching_on: bool) -> Blocker | None:
    """Return what this host lacks for vGPUs and virtual functions."""
    host, virtual = task.inventory.host, task.virtual
    making = bool(task.items) and not _wanted_vgpus_exist(task)
    if goal.vfio_bound - {f.pci for f in virtual.functions if f.driver == VFIO}:
        blocker = _vfio_blocker(task.inventory, task.gpu, "passthrough of virtual functions")
        if blocker is not None:
            return blocker
        if virtual.framework == "vendor-vfio":
            why = f"{VFIO} does not accept virtual functions of vendor-specific VFIO: a VM gets them as they are"
            return blocking.refused(
                task.gpu, RuleRefusal("NO_FUNCTION", why), StructuredText("aliquot vgpu list ", GpuPart(task.gpu.pci))
            )
    if not making and not switching_on:
        return None
    if task.gpu.virtual is None:
        return blocking.no_driver(task.gpu, "the state of the kernel was not read")
    if host is not None and host.vgpu_manager is False:
        return blocking.no_driver(task.gpu, "its driver is not the vGPU host driver")
    # A GPU bound to vfio-pci does not show whether its own driver offers vGPUs.
    in_passthrough = task.inventory.gpu(task.gpu.pci).passthrough
    unseen = virtual.framework == "" and (virtual.total == 0 or virtual.enabled) and not in_passthrough
    if making and unseen and not (virtual.enabled and host is not None and host.vgpu_manager):
        return blocking.no_driver(task.gpu, "no vGPU driver is active on it")
    if making and virtual.total and host is not None and not host.iommu:
        return blocking.no_iommu(task.gpu, "a vGPU on a virtual function")
    return None


def unlisted_type_blocker(task: Task, names: Sequence[str]) -> Blocker | None:
    """Return the blocker for a new vGPU of a type that is missing from the driver's own list."""
    if not names or task.virtual.creatable is None:
        return None
    from aliquot.core.planner.vgpu.creatable_types import unlisted_types as of

    reasons = of(task.inventory, task.gpu)
    found = next((name for name in names if name in reasons), None)
    return blocking.refused(task.gpu, RuleRefusal("SERIES", reasons[found])) if found is not None else None


def _wanted_vgpus_exist(task: Task) -> bool:
    """Report whether as many vGPUs of each requested type exist as requested."""
    have = [v.type_id for v in task.gpu.vgpus]
    return all(have.count(each.id or 0) >= n for each, n in task.types)


# -- NVSwitch fabric


def whole_gpu_blocker(task: Task) -> Blocker | None:
    """Return why a new vGPU that is a whole GPU is impossible on NVSwitch."""
    if not task.inventory.on_nvswitch(task.gpu) or task.desired.restoring:
        return None
    have = [v.type_id for v in task.gpu.vgpus]
    whole = [each for each, n in task.types if each.max == 1 and not each.mig_backed and have.count(each.id or 0) < n]
    if not whole:
        return None
    why = (
        f"{whole[0].name} is a whole GPU on NVSwitch: CUDA in its VM fails (error 802) until Fabric Manager "
        "activates the GPU's fabric partition, which aliquot does not do; MIG-backed types use no NVLink"
    )
    return blocking.refused(
        task.gpu, RuleRefusal("FABRIC", why), StructuredText("aliquot vgpu types ", GpuPart(task.gpu.pci))
    )


def passthrough_notes(inventory: Inventory, gpu: Gpu) -> tuple[str, ...]:
    """Return what a VM with this GPU also needs, as notes."""
    if not inventory.on_nvswitch(gpu):
        return ()
    return (
        f"GPU {gpu.pci} is on NVSwitch: pass it through to a VM of its own; CUDA in that VM fails (error 802) until "
        "Fabric Manager activates a partition of this GPU, or the guest's driver is loaded with NVreg_NvLinkDisable=1",
    )


def passthrough_blockers(inventory: Inventory, desired_gpus: Sequence[DesiredGpu]) -> tuple[Blocker, ...]:
    """Return why several GPUs cannot be passed through at once: for one VM they need a common fabric partition."""
    requested = {
        desired_gpu.pci for desired_gpu in desired_gpus if desired_gpu.passthrough and not desired_gpu.restoring
    }
    gpus = [gpu for gpu in inventory.gpus if gpu.pci in requested and inventory.on_nvswitch(gpu)]
    new = [gpu for gpu in gpus if not gpu.passthrough]
    if len(gpus) < 2 or not new:
        return ()
    listed = ", ".join(gpu.pci for gpu in gpus if gpu is not new[0])
    why = (
        f"it and {listed} are on NVSwitch: CUDA in a VM with several of them fails (error 802) until Fabric Manager "
        "activates their fabric partition, which aliquot does not do; pass them through one by one, each to a VM of "
        "its own"
    )
    return (
        blocking.refused(
            new[0], RuleRefusal("FABRIC", why), StructuredText("aliquot passthrough enable ", GpuPart(new[0].pci))
        ),
    )
