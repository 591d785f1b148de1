"""The change of the vGPU scheduler: what remains of it after the rest of a change, and whether it must be set."""

from __future__ import annotations

from aliquot.core.model.vgpu_scheduler import DEFAULT, instances_to_switch, meets
from aliquot.core.planner.vgpu.gpu_mode import Goal, Task
from aliquot.core.planner.vgpu.instance_scheduler import spared_instances


def changes_scheduler(task: Task, goal: Goal, *, wiped: bool) -> bool:
    """Report whether the scheduler must be set. After a change of virtual functions or of MIG mode (``wiped``) it is
    the driver's default. If the driver reports none, no vGPU is destroyed for it. In MIG mode GPU instances have it one
    by one: ``switch_instances``.
    """
    if goal.mig or (not (wiped or task.virtual.scheduler) and task.gpu.vgpus):
        return False
    remains = DEFAULT if wiped else task.virtual.scheduler
    return bool(goal.scheduler) and not meets(remains, goal.scheduler)


def switched_instances(task: Task, goal: Goal) -> frozenset[int]:
    """Return the ids of the GPU instances whose scheduler must change, for which their vGPUs must go."""
    if not goal.mig or not task.gpu.mig.enabled:
        return frozenset()
    return instances_to_switch(task.gpu, goal.scheduler) - spared_instances(task.gpu, task.desired)
