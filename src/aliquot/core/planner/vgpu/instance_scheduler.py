"""The scheduler of GPU instances, on chips that share a GPU instance between vGPUs (RTX PRO Blackwell).

Source: NVML since R575 (``nvmlGpuInstanceSetVgpuSchedulerState``). A GPU instance is created with the driver's default.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from aliquot.core.model.actions import Action, Create
from aliquot.core.model.catalog import Family
from aliquot.core.model.desired import DesiredGpu
from aliquot.core.model.inventory import Gpu, GpuInstance, Inventory
from aliquot.core.model.vgpu_scheduler import DEFAULT, meets
from aliquot.core.model.vgpu_types import VgpuTable
from aliquot.core.planner.vgpu.placement_policies import profile_of


def sharing_profiles(table: VgpuTable | None, family: Family | None) -> frozenset[int]:
    """Return the ids of the GPU instance profiles that several vGPUs can share."""
    if table is None or family is None:
        return frozenset()
    profiles = {name: p.id for name, p in family.by_name.items()}
    found = (profile_of(each, profiles) for each in table.types if each.per_instance > 1)
    return frozenset(profile for profile in found if profile is not None)


def new_scheduler(inventory: Inventory, gpu: Gpu, profile_id: int) -> str | msgspec.UnsetType:
    """Return the scheduler of a GPU instance that was just created, unset if it has none."""
    hosts = gpu.virtual is not None and inventory.host is not None and inventory.host.vgpu_manager
    shared = hosts and profile_id in sharing_profiles(inventory.vgpu_table(gpu), inventory.family(gpu))
    return DEFAULT if shared else msgspec.UNSET


def unseen_instance(gpu: Gpu, shared: frozenset[int]) -> GpuInstance | None:
    """Return a GPU instance that should have a scheduler, but whose scheduler cannot be seen."""
    return next((i for i in gpu.instances if i.profile_id in shared and i.scheduler is msgspec.UNSET), None)


def spared_instances(gpu: Gpu, desired_gpu: DesiredGpu) -> frozenset[int]:
    """Return the ids of the GPU instances that keep their scheduler because a VM has a vGPU of them."""
    held = {v.gpu_instance for v in gpu.vgpus if v.held and desired_gpu.spares_held}
    return frozenset(i.id for i in gpu.instances if i.id in held)


def changes_new(new: Iterable[Action], shared: frozenset[int], scheduler: str) -> bool:
    """Report whether a scheduler must be set on GPU instances that will be created."""
    made = any(isinstance(a, Create) and a.profile_id in shared for a in new)
    return made and bool(scheduler) and not meets(DEFAULT, scheduler)
