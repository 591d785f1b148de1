"""The GPU instances of a GPU that is shared with VMs, and the vGPUs in them: what stays, goes and is created."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from aliquot.core.model.inventory import Gpu, Vgpu
from aliquot.core.model.plan import Blocker
from aliquot.core.planner import blockers as blocked
from aliquot.core.planner import gpu_plan
from aliquot.core.planner import target_state as target
from aliquot.core.planner.gpu_plan import GpuPlan
from aliquot.core.planner.rules import RuleRefusal
from aliquot.core.planner.vgpu import blockers as blocking
from aliquot.core.planner.vgpu.actions import GpuTransition, nearest_around_held
from aliquot.core.planner.vgpu.gpu_mode import Goal, Task, instance_mode, placement_policy, wanted_instances
from aliquot.core.planner.vgpu.matching import PresentVgpu, VgpuTarget
from aliquot.core.planner.vgpu.mig_backed_search import VgpuSearch, present_vgpus, without_idle_vgpus
from aliquot.core.planner.vgpu.mixed_instances import instance_policy
from aliquot.core.planner.vgpu.placement_search import find_vgpu_target
from aliquot.core.planner.vgpu.scheduler import switched_instances

replace = msgspec.structs.replace


def plan_instances(transition: GpuTransition) -> tuple[GpuPlan, VgpuTarget | None]:
    """Plan GPU instances and the vGPUs in them (or all vGPUs, without MIG mode)."""
    task, goal = transition.task, transition.goal
    everything = tuple(
        PresentVgpu(v, task.table.by_id.get(v.type_id) if task.table else None, v.placement) for v in task.gpu.vgpus
    )
    held = [v for v in task.gpu.vgpus if v.held]
    gone = transition.wipes or (not goal.mig and task.gpu.mig.enabled)
    if held and gone and task.desired.vgpus is not None and task.policy.held == "refuse":
        return GpuPlan(blockers=(held_blocker(task, goal, held),)), None
    if not goal.mig:
        instance_plan = _destroy_instances(task, gpu_plan.MIG_DISABLED_REASON)
        if instance_plan.blockers:
            return instance_plan, None
        return instance_plan, _target_without_mig(transition, everything)
    if transition.wipes:
        instance_plan = _destroy_instances(
            task, gpu_plan.MIG_DISABLED_REASON if transition.mode else "a change of virtual functions removes it"
        )
        wanted = wanted_instances(task.desired.instances, task.gpu)
        emptied = replace(task, gpu=_emptied(task.gpu), desired=replace(task.desired, instances=wanted))
        found, vgpus = _plan_with_mig(emptied, goal)
        lost = GpuPlan(blockers=instance_plan.blockers or found.blockers)
        if lost.blockers or vgpus is None:
            return lost, None
        return replace(found, actions=(*instance_plan.actions, *found.actions)), VgpuTarget(
            (), everything, vgpus.to_create
        )
    return _plan_with_mig(task, goal)


def _target_without_mig(transition: GpuTransition, everything: tuple[PresentVgpu, ...]) -> VgpuTarget | None:
    task = transition.task
    if task.desired.vgpus is None:
        return VgpuTarget((), everything, ()) if transition.clears else VgpuTarget(everything, (), ())
    stay = () if transition.clears else everything
    if task.table is None:
        return VgpuTarget((), everything, ())
    found = find_vgpu_target(placement_policy(task, transition.goal.mixed_size), task.items, stay)
    return found if found is None or stay else VgpuTarget((), everything, found.to_create)


def _destroy_instances(task: Task, why: str) -> GpuPlan:
    """Destroy every GPU instance."""
    if not task.gpu.instances:
        return GpuPlan()
    gpu = task.gpu if task.desired.vgpus is None else without_idle_vgpus(task.gpu)
    return gpu_plan.change_instances(
        target.TargetSearch(task.placement_table, gpu, ()), (), why, task.requested_by, task.policy
    )


def _emptied(gpu: Gpu) -> Gpu:
    return replace(gpu, instances=(), vgpus=())


def _plan_with_mig(task: Task, goal: Goal) -> tuple[GpuPlan, VgpuTarget | None]:
    """Plan GPU instances and the vGPUs in them, in MIG mode that is enabled (or becomes so, on an empty GPU)."""
    assert task.family is not None
    present = (
        present_vgpus(task.gpu, task.table, task.family)
        if task.table
        else [PresentVgpu(v, None) for v in task.gpu.vgpus]
    )
    instances, switched = task.desired.instances, switched_instances(task, goal)
    if task.desired.vgpus is None:
        search: target.TargetSearch = target.TargetSearch(task.placement_table, task.gpu, instances or ())
    elif task.table is None or instances is None:
        return _plan_unchanged_instances(task, goal, present)
    else:
        mode = instance_mode(task, goal)
        search = VgpuSearch(task.placement_table, task.gpu, instances, task.table, task.items, mode, switched=switched)
    if instances is None:
        return GpuPlan(unchanged=len(task.gpu.instances)), _without_request(present, set(), switched)
    blocker = blocked.infeasible(task.placement_table, task.gpu, instances) if instances else None
    if blocker is not None:
        return GpuPlan(blockers=(blocker,)), None
    found = search.find_target()
    if found is None:
        return GpuPlan(blockers=(_capacity_blocker(task),)), None
    if isinstance(search, VgpuSearch):
        vgpus = search.vgpu_target(found.placed)
        assert vgpus is not None
        held = [h.vgpu for h in vgpus.to_destroy if h.vgpu.held]
        if held and task.policy.held == "refuse":
            return GpuPlan(blockers=(held_blocker(task, Goal(True, 0, False), held),)), None
    else:
        # Only force destroys a vGPU that was not named: the instance under it counts as held.
        under = {i.id for i in found.to_destroy}
        forced = under if task.policy.held == "force" else set[int]()
        vgpus = _without_request(present, under, forced | (switched - under))
    return gpu_plan.change_instances(search, instances, "", task.requested_by, task.policy), vgpus


def _without_request(present: Sequence[PresentVgpu], under: Collection[int], lost: Collection[int]) -> VgpuTarget:
    """Return the target for vGPUs that the request does not name. Those in GPU instances ``lost`` are destroyed. Those
    in the other GPU instances ``under`` keep these from being destroyed.
    """
    stay = tuple(h for h in present if h.placement not in {*under, *lost})
    return VgpuTarget(stay, tuple(h for h in present if h.placement in lost), ())


def _plan_unchanged_instances(
    task: Task, goal: Goal, present: Sequence[PresentVgpu]
) -> tuple[GpuPlan, VgpuTarget | None]:
    """Plan vGPUs in GPU instances that stay as they are."""
    assert task.family is not None
    if task.table is None:
        return GpuPlan(unchanged=len(task.gpu.instances)), VgpuTarget((), tuple(present), ())
    profiles = {name: p.id for name, p in task.family.by_name.items()}
    profiles_by_id, mode = [(i.id, i.profile_id) for i in task.gpu.instances], instance_mode(task, goal)
    remixed = {i.id for i in task.gpu.instances if mode not in (None, bool(i.mixed_size))}
    switched = remixed | switched_instances(task, goal)
    lost = tuple(h for h in present if h.placement in switched)
    policy = instance_policy(task.table, profiles_by_id, profiles, mixed=bool(mode))
    found = find_vgpu_target(policy, task.items, [h for h in present if h not in lost])
    if found is None:
        return GpuPlan(blockers=(_capacity_blocker(task),)), None
    unchanged = GpuPlan(unchanged=len(task.gpu.instances))
    return unchanged, VgpuTarget(found.retained, (*lost, *found.to_destroy), found.to_create)


def _capacity_blocker(task: Task) -> Blocker:
    missing = ", ".join(dict.fromkeys(i.type.profile for i in task.items))
    why = f"its GPU instances have no space for the requested vGPUs (they need {missing})"
    return blocking.refused(task.gpu, RuleRefusal("NO_INSTANCE", why))


def held_blocker(task: Task, goal: Goal, held: Sequence[Vgpu]) -> Blocker:
    """Return the blocker for held vGPUs. The nearest request keeps them."""
    what = "the request cannot be met" if task.items else "its vGPUs cannot be destroyed"
    nearest = nearest_around_held(task, goal, [v for v in task.gpu.vgpus if v.held])
    return blocking.held(task.gpu, what, held, nearest)
