"""The change of the vGPU scheduler: what remains of it after the rest of a change, and whether it must be set."""

from __future__ import annotations

from aliquot.core.model.vgpu_scheduler import DEFAULT, meets
from aliquot.core.planner.vgpu.gpu_mode import Goal, Task


def changes_scheduler(task: Task, goal: Goal, *, wiped: bool) -> bool:
    """Report whether the scheduler must be set. After a change of virtual functions or of MIG mode (``wiped``) it is
    the driver's default.
    """
    remains = DEFAULT if wiped else task.virtual.scheduler
    return bool(goal.scheduler) and not meets(remains, goal.scheduler)
