"""The transition of a GPU to its goal: what changes around the vGPUs, and each action with its reason."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from aliquot.core.model.actions import (
    Action,
    Create,
    CreateVgpu,
    Destroy,
    DestroyVgpu,
    SetFunctions,
    SetMixedSize,
    SetPassthrough,
    SetScheduler,
)
from aliquot.core.model.instance_ids import instance_id
from aliquot.core.model.inventory import MigMode, Vgpu
from aliquot.core.model.placement import Placement
from aliquot.core.planner.restore_point import VFIO
from aliquot.core.planner.vgpu import blockers as blocking
from aliquot.core.planner.vgpu import rules
from aliquot.core.planner.vgpu.function_assignment import FunctionAssignment
from aliquot.core.planner.vgpu.gpu_mode import Goal, Task, fits_empty, instance_mode, mixed_now, worth_proposing
from aliquot.core.planner.vgpu.instance_scheduler import changes_new, sharing_profiles
from aliquot.core.planner.vgpu.matching import PresentVgpu
from aliquot.core.planner.vgpu.placement_policies import Types
from aliquot.core.planner.vgpu.scheduler import changes_scheduler, switched_instances


class GpuTransition(msgspec.Struct, frozen=True):
    """The transition of one GPU to a goal. With both ``off`` and ``on``, virtual functions go off and on again."""

    task: Task
    goal: Goal
    off: bool
    """Virtual functions are disabled."""
    on: bool
    """Virtual functions are enabled."""
    mode: bool
    """MIG mode changes."""
    mixed_size: bool
    """Mixed-size mode changes."""
    scheduler: bool = False
    """The scheduler changes."""

    @property
    def wipes(self) -> bool:
        """True if it removes all GPU instances and vGPUs."""
        return self.mode or self.off or self.on

    @property
    def clears(self) -> bool:
        """True if it removes all vGPUs."""
        return self.wipes or self.mixed_size or self.scheduler

    @property
    def switched(self) -> frozenset[int]:
        """The GPU instances whose scheduler changes."""
        return switched_instances(self.task, self.goal)

    @property
    def pci(self) -> str:
        return self.task.gpu.pci

    def destroy_vgpus(self, to_destroy: Sequence[PresentVgpu]) -> list[Action]:
        """Destroy held vGPUs first. Waiting for them may fail, so nothing else is destroyed before."""
        ordered = sorted((h.vgpu for h in to_destroy), key=lambda v: not v.held)
        return [
            DestroyVgpu(
                gpu=self.pci,
                function=v.function,
                type_id=v.type_id,
                type=v.type,
                uuid=v.uuid,
                ownership_token=v.ownership_token,
                reason=self._destroy_reason(v),
            )
            for v in ordered
        ]

    def _destroy_reason(self, vgpu: Vgpu) -> str:
        wanted = sum(i.request.type_id == vgpu.type_id for i in self.task.items)
        have = sum(v.type_id == vgpu.type_id for v in self.task.gpu.vgpus)
        requested_by, explicit = self.task.requested_by, self.task.desired.vgpus is not None
        bound = vgpu.function in self.goal.vfio_bound
        reasons = (
            (self.task.desired.passthrough, "the GPU will be passed through"),
            (bound, f"its virtual function will be passed through, {requested_by}"),
            (not wanted and explicit, f"not {requested_by}"),
            (self.mode, f"MIG mode will be {'enabled' if self.goal.mig else 'disabled'}"),
            (self.off or self.on, "virtual functions will be disabled"),
            (self.goal.mixed_size != mixed_now(self.task), "mixed-size mode changes only without vGPUs"),
            (self.scheduler or vgpu.gpu_instance in self.switched, "the scheduler changes only without vGPUs"),
            (have > wanted and explicit, f"fewer {requested_by}"),
            (self.parameters_differ(vgpu), f"other plugin parameters {requested_by}"),
            (wanted, "the driver chooses placements itself, and the new vGPUs fit only without this one"),
        )
        why = next((text for applies, text in reasons if applies), "its GPU instance will be destroyed")
        if vgpu.held:
            why += f"; held by {', '.join(map(str, vgpu.holders))}, policy {self.task.policy.held}"
        return why

    def parameters_differ(self, vgpu: Vgpu) -> bool:
        """Report whether no request for the type of a vGPU allows its plugin parameters."""
        mine = [i.request.parameters for i in self.task.items if i.request.type_id == vgpu.type_id]
        return bool(mine) and not {None, vgpu.parameters} & set(mine)

    def unbind_functions(self) -> list[Action]:
        """Unbind virtual functions from vfio-pci: those that were not requested, or all if functions are disabled."""
        gone = [
            f.pci
            for f in self.task.virtual.functions
            if f.driver == VFIO and (self.off or f.pci not in self.goal.vfio_bound)
        ]
        return [
            SetPassthrough(
                gpu=self.pci,
                on=False,
                function=f,
                reason="virtual functions will be disabled" if self.off else f"not {self.task.requested_by}",
            )
            for f in gone
        ]

    def disable_functions(self) -> list[Action]:
        if not self.off:
            return []
        if not self.goal.functions:
            why = "the GPU will be passed through" if self.task.desired.passthrough else self.task.requested_by
        elif self.mode:
            why = "MIG mode cannot change while they exist"
        else:
            why = f"{len(self.task.virtual.functions)} functions are too few"
        return [SetFunctions(gpu=self.pci, count=0, reason=why)]

    def enable_functions(self) -> list[Action]:
        if not self.on:
            return []
        why = self.task.requested_by if self.task.items or self.task.desired.functions else "as before"
        return [SetFunctions(gpu=self.pci, count=self.goal.functions, reason=why)]

    def set_mixed_size(self, on: bool) -> list[Action]:
        if not self.mixed_size or (self.goal.mixed_size and not self.goal.mig) != on:
            return []
        requested = self.task.desired.mixed_size
        why = (
            self.task.requested_by
            if requested is not None
            else "as before"
            if on
            else f"the vGPUs {self.task.requested_by} do not fit in mixed-size mode"
        )
        return [SetMixedSize(gpu=self.pci, on=on, reason=why)]

    def set_scheduler(self) -> list[Action]:
        if not self.scheduler:
            return []
        return [SetScheduler(gpu=self.pci, scheduler=self.goal.scheduler, reason=self._scheduler_reason())]

    def switch_instances(self, gone: Sequence[Action], new: Sequence[Action]) -> list[Action]:
        """Set mixed-size mode and scheduler of the GPU instances that stay or will be created, where they differ."""
        if not self.goal.mig:
            return []
        mode = instance_mode(self.task, self.goal)
        destroyed = {a.instance for a in gone if isinstance(a, Destroy)}
        stay = [] if self.wipes else [i for i in self.task.gpu.instances if i.id not in destroyed]
        have = {bool(i.mixed_size) for i in stay} | {False for a in new if isinstance(a, Create)}
        mixed: list[Action] = []
        if mode is not None and not have <= {mode}:
            asked = self.task.desired.mixed_size is not None
            why = self.task.requested_by if asked else "as before" if mode else "fixed-share needs vGPUs of one size"
            mixed = [SetMixedSize(gpu=self.pci, on=mode, reason=why)]
        scheduler = self._instance_scheduler(frozenset(i.id for i in stay), new)
        # Mixed-size mode and fixed share exclude each other, so the one that goes comes first.
        return scheduler + mixed if mode else mixed + scheduler

    def _instance_scheduler(self, stay: frozenset[int], new: Sequence[Action]) -> list[Action]:
        shared = sharing_profiles(self.task.table, self.task.family)
        if not self.switched & stay and not changes_new(new, shared, self.goal.scheduler):
            return []
        return [SetScheduler(gpu=self.pci, scheduler=self.goal.scheduler, reason=self._scheduler_reason())]

    def _scheduler_reason(self) -> str:
        return self.task.requested_by if self.task.desired.scheduler is not None else "as before"

    def instance_placements(self, new: Sequence[Action]) -> dict[int, str]:
        """Return the placements of GPU instances that stay or will be created, by GPU instance id."""
        gpu, family = self.task.gpu, self.task.family
        out = {} if self.wipes else {i.id: i.placement for i in gpu.instances}
        for action in new:
            if isinstance(action, Create) and family is not None:
                place = Placement.parse(action.placement)
                out = {n: p for n, p in out.items() if not Placement.parse(p).mask & place.mask}
                out[instance_id(family, place, bool(gpu.slots_mirrored), list(out))] = action.placement
        return out

    def create_vgpus(self, assignments: Sequence[FunctionAssignment], placements: dict[int, str]) -> list[Action]:
        recorded = {v.uuid for v in self.task.virtual.recorded_vgpus}
        # A vGPU of another type on the same function has the same UUID, and no parameters of the former one.
        present = {(v.uuid, v.type_id): v.parameters for v in self.task.gpu.vgpus}

        def parameters(new: FunctionAssignment) -> str:
            as_before = present.get((new.uuid, new.item.type.id or 0), "")
            return as_before if new.item.request.parameters is None else new.item.request.parameters

        return [
            CreateVgpu(
                gpu=self.pci,
                function=c.function,
                type_id=c.item.type.id or 0,
                type=c.item.type.name,
                uuid=c.uuid,
                placement=c.placement if self.goal.mixed_size and not self.goal.mig else None,
                parameters=parameters(c),
                instance=placements.get(c.placement) if self.goal.mig and c.placement is not None else None,
                reason=f"{self.task.requested_by}, as before the reboot"
                if c.uuid in recorded
                else self.task.requested_by,
            )
            for c in assignments
        ]

    def bind_functions(self) -> list[Action]:
        vfio_bound = {f.pci for f in self.task.virtual.functions if f.driver == VFIO} if not self.off else set()
        why = self.task.requested_by if self.task.desired.vfio_bound is not None else "as before"
        missing = sorted(self.goal.vfio_bound - vfio_bound)
        return [SetPassthrough(gpu=self.pci, on=True, function=f, reason=why) for f in missing]


def find_transition(task: Task, goal: Goal) -> GpuTransition:
    """Return what has to change around the vGPUs."""
    now, mig = len(task.virtual.functions), task.gpu.mig
    want: MigMode = "enabled" if goal.mig else "disabled"
    mode = task.family is not None and mig.capable and (mig.current, mig.pending) != (want, want)
    needs_reset = task.family is not None and task.family.mode.change_needs_gpu_reset
    off = now > 0 and (goal.functions != now or (mode and (not goal.mig or needs_reset)))
    on = goal.functions > 0 and (off or now == 0)
    # GPU instances have the mode one by one: ``switch_instances``.
    remains_mixed = mixed_now(task) and not (off or on or mig.enabled)
    mixed_size = (goal.mixed_size and not goal.mig) != remains_mixed
    scheduler = changes_scheduler(task, goal, wiped=off or on or mode)
    return GpuTransition(task, goal, off, on, mode, mixed_size, scheduler)


def nearest_around_held(task: Task, goal: Goal, held: Sequence[Vgpu]) -> Types:
    """Return the largest part of the request that fits besides the held vGPUs, including these.

    Empty if it equals the request, or if the held vGPUs are of unknown types.
    """
    if task.table is None or not task.items:
        return []
    staying = [task.table.by_id[v.type_id] for v in held if v.type_id in task.table.by_id]
    if not staying:
        return []

    def with_held(types: Types) -> Types:
        return rules.count_types([*staying, *(each for each, n in types for _ in range(n))])

    def feasible(types: Types) -> bool:
        return fits_empty(task, with_held(types), mixed=goal.mixed_size)

    wanted = list(task.types)
    for each in staying:
        wanted = [(w, n - (w.name == each.name)) for w, n in wanted]
    nearest = with_held(blocking.nearest([(w, n) for w, n in wanted if n > 0], feasible))
    possible = (
        nearest != task.types and worth_proposing(task, nearest) and fits_empty(task, nearest, mixed=goal.mixed_size)
    )
    return nearest if possible else []
