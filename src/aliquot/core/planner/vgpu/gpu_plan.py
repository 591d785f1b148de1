"""The ordered actions of a GPU that is shared with VMs.

Destroy vGPUs and GPU instances, disable virtual functions if necessary, set MIG mode, enable virtual functions, set
the scheduler and mixed-size mode, create GPU instances, create vGPUs. If one of these changes, the driver forgets all
later ones.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from aliquot.core.model.actions import Action, Create, CreateCompute, Destroy, DestroyCompute, SetPassthrough
from aliquot.core.model.desired import DesiredGpu
from aliquot.core.model.inventory import Gpu, GpuInstance, Inventory, Vgpu
from aliquot.core.model.plan import Blocker, Policy
from aliquot.core.model.structured_text import GpuOption, GpuPart, StructuredText
from aliquot.core.planner import blockers as blocked
from aliquot.core.planner import gpu_plan
from aliquot.core.planner.gpu_plan import GpuPlan
from aliquot.core.planner.rules import RuleRefusal
from aliquot.core.planner.vgpu import blockers as blocking
from aliquot.core.planner.vgpu import drift, passthrough
from aliquot.core.planner.vgpu.actions import GpuTransition, find_transition
from aliquot.core.planner.vgpu.function_assignment import assign_functions
from aliquot.core.planner.vgpu.gpu_mode import Goal, Task, find_goal, gpu_at_goal, impossible, resolve_task
from aliquot.core.planner.vgpu.instance_plan import held_blocker, plan_instances
from aliquot.core.planner.vgpu.matching import PresentVgpu, VgpuTarget

replace = msgspec.structs.replace


def plan_shared_gpu(inventory: Inventory, gpu: Gpu, desired_gpu: DesiredGpu, name: str, policy: Policy) -> GpuPlan:
    """Plan one GPU if its inventory or desired state has virtual functions, vGPUs or passthrough."""
    if gpu.lost:
        return GpuPlan(blockers=(blocked.lost(gpu),))
    requested_by = f'requested by "{name}"' if name else "requested"
    if gpu.passthrough:
        if desired_gpu.passthrough and drift.passthrough_interrupted(gpu):
            retry = SetPassthrough(
                gpu=gpu.pci, on=True, reason=f"{requested_by}; an interrupted passthrough left it without driver"
            )
            return GpuPlan((retry,))
        if desired_gpu.passthrough or not drift.must_reclaim(gpu, desired_gpu):
            return GpuPlan()
        if gpu.holders and policy.held == "refuse":
            return GpuPlan(blockers=(blocking.passed_through(gpu),))
        family = inventory.family(gpu) if gpu.mig.capable and gpu.family else None
        rest = _plan_visible(inventory, passthrough.reclaimed(gpu, family), desired_gpu, requested_by, policy)
        why = requested_by if desired_gpu.passthrough is False else f"needed on this host, {requested_by}"
        reclaim = SetPassthrough(gpu=gpu.pci, on=False, reason=why)
        return rest if rest.blockers else replace(rest, actions=(reclaim, *rest.actions))
    return _plan_visible(inventory, gpu, desired_gpu, requested_by, policy)


def _plan_visible(
    inventory: Inventory, gpu: Gpu, desired_gpu: DesiredGpu, requested_by: str, policy: Policy
) -> GpuPlan:
    """Plan a GPU that the driver sees."""
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
            scheduler=None,
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
            notes=(*found.notes, *passthrough.passthrough_notes(inventory, gpu)),
        )
    return found


def _goal_blocker(transition: GpuTransition) -> Blocker | None:
    """Return the first reason why the goal is impossible, whatever instances and vGPUs are destroyed for it."""
    task, goal = transition.task, transition.goal
    refusal = (
        impossible(task, goal)
        or passthrough.whole_gpu_blocker(task)
        or passthrough.host_blocker(task, goal, transition.on)
    )
    return refusal or _in_use_blocker(transition)


def _plan_sharing(task: Task, goal: Goal) -> GpuPlan:
    transition = find_transition(task, goal)
    blocker = _goal_blocker(transition)
    if blocker is not None:
        return GpuPlan(blockers=(blocker,))
    evicted = [v for v in task.gpu.vgpus if v.function in goal.vfio_bound]
    instances, vgpus = plan_instances(replace(transition, task=_without_vgpus(task, evicted)))
    if instances.blockers or vgpus is None:
        return GpuPlan(blockers=instances.blockers)
    blocker = _eviction_blocker(task, goal, [h.vgpu for h in vgpus.to_destroy], evicted)
    if blocker is not None:
        return GpuPlan(blockers=(blocker,))
    vgpus = VgpuTarget(vgpus.retained, (*vgpus.to_destroy, *(PresentVgpu(v, None) for v in evicted)), vgpus.to_create)
    retained = [h.vgpu for h in vgpus.retained]
    at_goal = _with_renewed(transition, vgpus.to_destroy)
    assignments = assign_functions(at_goal, vgpus.to_create, retained, goal.vfio_bound)
    if isinstance(assignments, RuleRefusal):
        listing = StructuredText("aliquot vgpu list ", GpuPart(task.gpu.pci))
        return GpuPlan(blockers=(blocking.refused(task.gpu, assignments, listing),))
    unlisted = passthrough.unlisted_type_blocker(task, [c.item.type.name for c in assignments])
    if unlisted is not None:
        return GpuPlan(blockers=(unlisted,))
    mode = gpu_plan.change_mode(task.family, task.gpu, goal.mig, task.requested_by, task.policy)
    if mode.blockers:
        return mode
    gone = [a for a in instances.actions if isinstance(a, Destroy | DestroyCompute)]
    new = [a for a in instances.actions if isinstance(a, Create | CreateCompute)]
    if (new or transition.off or transition.on) and task.gpu.holders and task.policy.held == "refuse":
        what = "no instance can be created" if new else "virtual functions cannot be enabled or disabled"
        return GpuPlan(blockers=(blocked.busy(task.gpu, what),))
    before: list[Action] = [*transition.destroy_vgpus(vgpus.to_destroy), *gone, *transition.unbind_functions()]
    before += [*transition.set_mixed_size(on=False), *transition.disable_functions()]
    if mode.reboot:
        return GpuPlan((*before, *mode.actions), 0, (), True, mode.notes)
    after = [*transition.enable_functions(), *transition.set_scheduler(), *transition.set_mixed_size(on=True), *new]
    after += transition.switch_instances(gone, new)
    after += [*transition.create_vgpus(assignments, transition.instance_placements(new)), *transition.bind_functions()]
    count = instances.unchanged + len(retained)
    return GpuPlan((*before, *mode.actions, *after), count, (), False, mode.notes + instances.notes)


def _with_renewed(transition: GpuTransition, to_destroy: Sequence[PresentVgpu]) -> Gpu:
    """Return the GPU with its virtual functions at the goal. The vGPUs that are only destroyed for the change are among
    those to create as they were: their VMs know them by function and UUID.
    """
    gpu = gpu_at_goal(transition.task, transition.goal)
    if gpu.virtual is None or not to_destroy:
        return gpu
    recorded = (*(h.vgpu for h in to_destroy), *gpu.virtual.recorded_vgpus)
    return replace(gpu, virtual=replace(gpu.virtual, recorded_vgpus=recorded))


def _without_vgpus(task: Task, evicted: Sequence[Vgpu]) -> Task:
    """Return the task without some vGPUs, whose functions will be passed through."""
    if not evicted:
        return task
    names = {v.function for v in evicted}

    def instance(before: GpuInstance) -> GpuInstance:
        rest = tuple(h for h in before.holders if h.kind != "vgpu" or h.id not in names)
        return replace(before, holders=rest, held=bool(rest) or (before.held and not before.holders))

    vgpus = tuple(v for v in task.gpu.vgpus if v.function not in names)
    return replace(task, gpu=replace(task.gpu, vgpus=vgpus, instances=tuple(instance(i) for i in task.gpu.instances)))


def _eviction_blocker(task: Task, goal: Goal, to_destroy: Sequence[Vgpu], evicted: Sequence[Vgpu]) -> Blocker | None:
    """Return why vGPUs that block the goal may not be destroyed under this policy."""
    if task.desired.vgpus is None and task.policy.held != "force" and any(not v.held for v in to_destroy):
        return _unrequested_blocker(task, to_destroy)
    held = [v for v in (*to_destroy, *evicted) if v.held]
    return held_blocker(task, goal, held) if held and task.policy.held == "refuse" else None


def _unrequested_blocker(task: Task, vgpus: Sequence[Vgpu]) -> Blocker:
    """Return the blocker for idle vGPUs that the request does not name, as a MIG file or label cannot. Their owner is
    unknown.
    """
    holders = [h for v in vgpus for h in v.holders]
    listed = blocking.list_vgpus(task.gpu, vgpus)
    return blocking.functions_in_use(task.gpu, "the request cannot be met", holders, listed, _destroy_vgpus(task))


def _destroy_vgpus(task: Task) -> str:
    """Return the command that plans to destroy the GPU's vGPUs."""
    return StructuredText("aliquot plan ", GpuOption(task.gpu.pci), " --vgpu none")


def _in_use_blocker(transition: GpuTransition) -> Blocker | None:
    """Return the blocker for virtual functions that must be disabled but have vGPUs or holders outside the request."""
    task = transition.task
    if not transition.off or task.policy.held == "force":
        return None
    vgpus = {v.function for v in task.gpu.vgpus}
    busy = [f for f in task.virtual.functions if f.holders and f.pci not in vgpus]
    if busy and task.policy.held == "refuse":
        holders = [h for f in busy for h in f.holders]
        names = ", ".join(f.pci for f in busy)
        return blocking.functions_in_use(task.gpu, "they cannot be switched off", holders, names)
    if task.gpu.vgpus and task.desired.vgpus is None and task.desired.functions is False:
        holders = [h for v in task.gpu.vgpus for h in v.holders]
        listed, what = blocking.list_vgpus(task.gpu, task.gpu.vgpus), "they cannot be switched off"
        return blocking.functions_in_use(task.gpu, what, holders, listed, _destroy_vgpus(task))
    return None
