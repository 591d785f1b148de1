"""The ordered actions of a GPU that is shared with virtual machines.

Destroy vGPUs and GPU instances, virtual functions off where they must be, MIG mode, virtual functions on, mixed-size
mode, GPU instances, vGPUs: the driver forgets everything later in this row when something earlier in it changes.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from aliquot.core.model.actions import Action, Create, CreateCompute, Destroy, DestroyCompute, SetPassthrough
from aliquot.core.model.desired import DesiredGpu
from aliquot.core.model.inventory import Gpu, GpuInstance, Inventory, MigMode, Vgpu
from aliquot.core.model.plan import Blocker, Policy
from aliquot.core.planner import blockers as blocked
from aliquot.core.planner import gpu_plan
from aliquot.core.planner import target_state as target
from aliquot.core.planner.gpu_plan import GpuPlan
from aliquot.core.planner.rules import RuleRefusal
from aliquot.core.planner.vgpu import actions as acts
from aliquot.core.planner.vgpu import blockers as blocking
from aliquot.core.planner.vgpu import fabric, passthrough
from aliquot.core.planner.vgpu.function_assignment import assign_functions
from aliquot.core.planner.vgpu.gpu_mode import (
    Goal,
    Task,
    find_goal,
    gpu_at_goal,
    impossible,
    mixed_now,
    placement_policy,
    resolve_task,
    wanted_instances,
)
from aliquot.core.planner.vgpu.matching import PresentVgpu, VgpuTarget
from aliquot.core.planner.vgpu.mig_backed_search import VgpuSearch, present_vgpus, without_idle_vgpus
from aliquot.core.planner.vgpu.placement_policies import MigBackedPolicy
from aliquot.core.planner.vgpu.placement_search import find_vgpu_target

replace = msgspec.structs.replace


class GpuModeChanges(msgspec.Struct, frozen=True):
    """What changes around the vGPUs: MIG mode, virtual functions ``functions_off`` or ``functions_on`` (both: off and
    on again), mixed-size mode. A ``wipe`` leaves no GPU instance and no vGPU, ``clear`` no vGPU.
    """

    mode: bool
    functions_off: bool
    functions_on: bool
    mixed_size: bool

    @property
    def wipe(self) -> bool:
        return self.mode or self.functions_off or self.functions_on

    @property
    def clear(self) -> bool:
        return self.wipe or self.mixed_size


def plan_shared_gpu(inventory: Inventory, gpu: Gpu, desired_gpu: DesiredGpu, name: str, policy: Policy) -> GpuPlan:
    """The lane that leads one GPU to its wish, where virtual functions, vGPUs or passthrough have to do with either."""
    if gpu.lost:
        return GpuPlan(blockers=(blocked.lost(gpu),))
    requested_by = f'asked by "{name}"' if name else "asked"
    if gpu.passthrough:
        if desired_gpu.passthrough and passthrough.passthrough_interrupted(gpu):
            retry = SetPassthrough(
                gpu=gpu.pci, on=True, reason=f"{requested_by}; it has no driver: handing it out was cut off"
            )
            return GpuPlan((retry,))
        if desired_gpu.passthrough or not passthrough.must_reclaim(gpu, desired_gpu):
            return GpuPlan()
        if gpu.holders and policy.held == "refuse":
            return GpuPlan(blockers=(blocking.passed_through(gpu),))
        family = inventory.family(gpu) if gpu.mig.capable and gpu.family else None
        rest = _plan_visible(inventory, passthrough.reclaimed(gpu, family), desired_gpu, requested_by, policy)
        reclaim = SetPassthrough(
            gpu=gpu.pci, on=False, reason=requested_by if desired_gpu.passthrough is False else f"{requested_by} of it"
        )
        return rest if rest.blockers else replace(rest, actions=(reclaim, *rest.actions))
    return _plan_visible(inventory, gpu, desired_gpu, requested_by, policy)


def _plan_visible(
    inventory: Inventory, gpu: Gpu, desired_gpu: DesiredGpu, requested_by: str, policy: Policy
) -> GpuPlan:
    """The lane of a GPU that the driver has."""
    if desired_gpu.passthrough:
        blocker = passthrough.passthrough_blocker(inventory, gpu, desired_gpu, policy)
        if blocker is not None:
            return GpuPlan(blockers=(blocker,))
        desired_gpu = replace(
            desired_gpu,
            instances=(),
            vgpus=(),
            functions=False if gpu.virtual else None,
            mixed_size=None,
            vfio_bound=None,
        )
    task = resolve_task(inventory, gpu, desired_gpu, requested_by, policy)
    if isinstance(task, Blocker):
        return GpuPlan(blockers=(task,))
    goal = find_goal(task)
    if isinstance(goal, Blocker):
        return GpuPlan(blockers=(goal,))
    found = _plan_sharing(task, goal)
    if desired_gpu.passthrough and not found.blockers and not found.reboot:
        pass_through = SetPassthrough(gpu=gpu.pci, on=True, reason=requested_by)
        return replace(
            found,
            actions=(*found.actions, pass_through),
            notes=(*found.notes, *fabric.passthrough_notes(inventory, gpu)),
        )
    return found


def find_changes(task: Task, goal: Goal) -> GpuModeChanges:
    """What has to change around the vGPUs."""
    now, mig = len(task.virtual.functions), task.gpu.mig
    want: MigMode = "enabled" if goal.mig else "disabled"
    mode = task.family is not None and mig.capable and (mig.current, mig.pending) != (want, want)
    needs_reset = task.family is not None and task.family.mode.change_needs_gpu_reset
    off = now > 0 and (goal.functions != now or (mode and (not goal.mig or needs_reset)))
    on = goal.functions > 0 and (off or now == 0)
    remains_mixed = mixed_now(task) and not (off or on)
    return GpuModeChanges(mode, off, on, mixed_size=goal.mixed_size != remains_mixed)


def _goal_blocker(task: Task, goal: Goal, change: GpuModeChanges) -> Blocker | None:
    """Return the first reason why the goal cannot be had, whatever instances and vGPUs would go for it."""
    refusal = (
        impossible(task, goal)
        or fabric.whole_gpu_blocker(task)
        or passthrough.host_blocker(task, goal, change.functions_on)
    )
    return refusal or _in_use_blocker(task, change)


def _plan_sharing(task: Task, goal: Goal) -> GpuPlan:
    change = find_changes(task, goal)
    blocker = _goal_blocker(task, goal, change)
    if blocker is not None:
        return GpuPlan(blockers=(blocker,))
    evicted = [v for v in task.gpu.vgpus if v.function in goal.vfio_bound]
    instances, vgpus = _plan_instances(without_vgpus(task, evicted), goal, change)
    if instances.blockers or vgpus is None:
        return GpuPlan(blockers=instances.blockers)
    blocker = _eviction_blocker(task, goal, [h.vgpu for h in vgpus.to_destroy], evicted)
    if blocker is not None:
        return GpuPlan(blockers=(blocker,))
    vgpus = VgpuTarget(vgpus.retained, (*vgpus.to_destroy, *(PresentVgpu(v, None) for v in evicted)), vgpus.to_create)
    retained = [h.vgpu for h in vgpus.retained]
    assignments = assign_functions(gpu_at_goal(task, goal), vgpus.to_create, retained, goal.vfio_bound)
    if isinstance(assignments, RuleRefusal):
        return GpuPlan(blockers=(blocking.refused(task.gpu, assignments, f"aliquot vgpu list {task.gpu.pci}"),))
    unlisted = passthrough.unlisted_type_blocker(task, [c.item.type.name for c in assignments])
    if unlisted is not None:
        return GpuPlan(blockers=(unlisted,))
    mode = gpu_plan.change_mode(task.family, task.gpu, goal.mig, task.requested_by, task.policy)
    if mode.blockers:
        return mode
    gone = [a for a in instances.actions if isinstance(a, Destroy | DestroyCompute)]
    new = [a for a in instances.actions if isinstance(a, Create | CreateCompute)]
    if (new or change.functions_off or change.functions_on) and task.gpu.holders and task.policy.held == "refuse":
        what = "no instance can be created" if new else "virtual functions cannot be switched"
        return GpuPlan(blockers=(blocked.busy(task.gpu, what),))
    transition = acts.GpuTransition(task, goal, change.functions_off, change.functions_on, change.mode)
    before: list[Action] = [*transition.destroy_vgpus(vgpus.to_destroy), *gone, *transition.unbind_functions()]
    before += [*transition.set_mixed_size(change.mixed_size and not goal.mixed_size), *transition.disable_functions()]
    if mode.reboot:
        return GpuPlan((*before, *mode.actions), 0, (), True, mode.notes)
    after = [*transition.enable_functions(), *transition.set_mixed_size(change.mixed_size and goal.mixed_size), *new]
    after += [*transition.create_vgpus(assignments, transition.instance_placements(new)), *transition.bind_functions()]
    count = instances.unchanged + len(retained)
    return GpuPlan((*before, *mode.actions, *after), count, (), False, mode.notes + instances.notes)


def without_vgpus(task: Task, evicted: Sequence[Vgpu]) -> Task:
    """The task as if some vGPUs were not there: their functions are to be handed out."""
    if not evicted:
        return task
    names = {v.function for v in evicted}

    def instance(before: GpuInstance) -> GpuInstance:
        rest = tuple(h for h in before.holders if h.kind != "vgpu" or h.id not in names)
        return replace(before, holders=rest, held=bool(rest) or (before.held and not before.holders))

    vgpus = tuple(v for v in task.gpu.vgpus if v.function not in names)
    return replace(task, gpu=replace(task.gpu, vgpus=vgpus, instances=tuple(instance(i) for i in task.gpu.instances)))


def _plan_instances(task: Task, goal: Goal, change: GpuModeChanges) -> tuple[GpuPlan, VgpuTarget | None]:
    """What happens to GPU instances, and to the vGPUs in them (or to all vGPUs, without MIG mode)."""
    everything = tuple(
        PresentVgpu(v, task.table.by_id.get(v.type_id) if task.table else None, v.placement) for v in task.gpu.vgpus
    )
    held = [v for v in task.gpu.vgpus if v.held]
    gone = change.wipe or (not goal.mig and task.gpu.mig.enabled)
    if held and gone and task.desired.vgpus is not None and task.policy.held == "refuse":
        return GpuPlan(blockers=(_held_blocker(task, goal, held),)), None
    if not goal.mig:
        instance_plan = _destroy_instances(task, gpu_plan.MIG_DISABLED_REASON)
        if instance_plan.blockers:
            return instance_plan, None
        return instance_plan, _target_without_mig(task, goal, change, everything)
    if change.wipe:
        instance_plan = _destroy_instances(
            task, gpu_plan.MIG_DISABLED_REASON if change.mode else "switching virtual functions takes them away"
        )
        wanted = wanted_instances(task.desired.instances, task.gpu)
        found, vgpus = _plan_with_mig(
            replace(task, gpu=_emptied(task.gpu), desired=replace(task.desired, instances=wanted))
        )
        lost = GpuPlan(blockers=instance_plan.blockers or found.blockers)
        if lost.blockers or vgpus is None:
            return lost, None
        return replace(found, actions=(*instance_plan.actions, *found.actions)), VgpuTarget(
            (), everything, vgpus.to_create
        )
    return _plan_with_mig(task)


def _target_without_mig(
    task: Task, goal: Goal, change: GpuModeChanges, everything: tuple[PresentVgpu, ...]
) -> VgpuTarget | None:
    if task.desired.vgpus is None:
        return VgpuTarget((), everything, ()) if change.clear else VgpuTarget(everything, (), ())
    stay = () if change.clear else everything
    if task.table is None:
        return VgpuTarget((), everything, ())
    found = find_vgpu_target(placement_policy(task, goal.mixed_size), task.items, stay)
    return found if found is None or stay else VgpuTarget((), everything, found.to_create)


def _destroy_instances(task: Task, why: str) -> GpuPlan:
    """Every GPU instance goes."""
    if not task.gpu.instances:
        return GpuPlan()
    gpu = task.gpu if task.desired.vgpus is None else without_idle_vgpus(task.gpu)
    return gpu_plan.change_instances(
        target.TargetSearch(task.placement_table, gpu, ()), (), why, task.requested_by, task.policy
    )


def _emptied(gpu: Gpu) -> Gpu:
    return replace(gpu, instances=(), vgpus=())


def _plan_with_mig(task: Task) -> tuple[GpuPlan, VgpuTarget | None]:
    """GPU instances and the vGPUs in them, in MIG mode that is on (or comes on, with nothing there)."""
    assert task.family is not None
    present = (
        present_vgpus(task.gpu, task.table, task.family)
        if task.table
        else [PresentVgpu(v, None) for v in task.gpu.vgpus]
    )
    instances = task.desired.instances
    if task.desired.vgpus is None:
        search: target.TargetSearch = target.TargetSearch(task.placement_table, task.gpu, instances or ())
    elif task.table is None or instances is None:
        return _plan_unchanged_instances(task, present)
    else:
        search = VgpuSearch(task.placement_table, task.gpu, instances, task.table, task.items)
    if instances is None:
        return GpuPlan(unchanged=len(task.gpu.instances)), VgpuTarget(tuple(present), (), ())
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
            return GpuPlan(blockers=(_held_blocker(task, Goal(True, 0, False), held),)), None
    else:
        # Only force reaches a vGPU that nobody named: the instance under it counts as held.
        under = {i.id for i in found.to_destroy}
        lost = [h for h in present if h.placement in under and task.policy.held == "force"]
        stay = [h for h in present if h not in lost]
        vgpus = VgpuTarget(tuple(h for h in stay if h.placement not in under), tuple(lost), ())
    return gpu_plan.change_instances(search, instances, "", task.requested_by, task.policy), vgpus


def _plan_unchanged_instances(task: Task, present: Sequence[PresentVgpu]) -> tuple[GpuPlan, VgpuTarget | None]:
    """The GPU instances stay as they are: the vGPUs must do with them."""
    assert task.family is not None
    if task.table is None:
        return GpuPlan(unchanged=len(task.gpu.instances)), VgpuTarget((), tuple(present), ())
    profiles = {name: p.id for name, p in task.family.by_name.items()}
    policy = MigBackedPolicy(task.table, [(i.id, i.profile_id) for i in task.gpu.instances], profiles)
    found = find_vgpu_target(policy, task.items, present)
    if found is None:
        return GpuPlan(blockers=(_capacity_blocker(task),)), None
    return GpuPlan(unchanged=len(task.gpu.instances)), found


def _capacity_blocker(task: Task) -> Blocker:
    missing = ", ".join(dict.fromkeys(i.type.profile for i in task.items))
    why = f"its GPU instances have no room for the vGPUs asked (they need {missing})"
    return blocking.refused(task.gpu, RuleRefusal("NO_INSTANCE", why))


def _held_blocker(task: Task, goal: Goal, held: Sequence[Vgpu]) -> Blocker:
    """Held vGPUs are in the way; the nearest wish keeps them."""
    what = "it cannot become what was asked" if task.items else "its vGPUs cannot be destroyed"
    nearest = acts.nearest_around_held(task, goal, [v for v in task.gpu.vgpus if v.held])
    return blocking.held(task.gpu, what, held, nearest)


def _eviction_blocker(task: Task, goal: Goal, to_destroy: Sequence[Vgpu], evicted: Sequence[Vgpu]) -> Blocker | None:
    """Why vGPUs that are in the way may not go under this policy."""
    if task.desired.vgpus is None and task.policy.held != "force" and any(not v.held for v in to_destroy):
        return _unrequested_blocker(task, to_destroy)
    held = [v for v in (*to_destroy, *evicted) if v.held]
    return _held_blocker(task, goal, held) if held and task.policy.held == "refuse" else None


def _unrequested_blocker(task: Task, vgpus: Sequence[Vgpu]) -> Blocker:
    """vGPUs that no machine has open, in the way of a wish that does not speak of them: of a MIG file or label, which
    cannot. Whose they are is not ours to guess.
    """
    listed = [f"{v.type} on {v.function}" for v in vgpus]
    holders = [h for v in vgpus for h in v.holders]
    what = "it cannot become what was asked"
    next_step = f"aliquot plan --gpu {task.gpu.pci} --vgpu none"
    return blocking.functions_in_use(task.gpu, what, holders, listed, next_step)


def _in_use_blocker(task: Task, change: GpuModeChanges) -> Blocker | None:
    """Virtual functions that must go and carry what the wish does not speak of."""
    if not change.functions_off or task.policy.held == "force":
        return None
    vgpus = {v.function for v in task.gpu.vgpus}
    busy = [f for f in task.virtual.functions if f.holders and f.pci not in vgpus]
    if busy and task.policy.held == "refuse":
        holders = [h for f in busy for h in f.holders]
        names = [f.pci for f in busy]
        return blocking.functions_in_use(task.gpu, "they cannot be switched off", holders, names)
    if task.gpu.vgpus and task.desired.vgpus is None and task.desired.functions is False:
        listed = [f"{v.type} on {v.function}" for v in task.gpu.vgpus]
        holders = [h for v in task.gpu.vgpus for h in v.holders]
        next_step = f"aliquot plan --gpu {task.gpu.pci} --vgpu none"
        return blocking.functions_in_use(task.gpu, "they cannot be switched off", holders, listed, next_step)
    return None
