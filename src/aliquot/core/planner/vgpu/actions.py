"""The single acts around vGPUs, each with its reason."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from aliquot.core.model.actions import (
    Action,
    Create,
    CreateVgpu,
    DestroyVgpu,
    SetFunctions,
    SetMixedSize,
    SetPassthrough,
)
from aliquot.core.model.instance_ids import instance_id
from aliquot.core.model.inventory import Vgpu
from aliquot.core.model.placement import Placement
from aliquot.core.planner.restore_point import VFIO
from aliquot.core.planner.vgpu import blockers as blocking
from aliquot.core.planner.vgpu import rules
from aliquot.core.planner.vgpu.function_assignment import FunctionAssignment
from aliquot.core.planner.vgpu.gpu_mode import Goal, Task, fits_empty, mixed_now, worth_proposing
from aliquot.core.planner.vgpu.matching import PresentVgpu
from aliquot.core.planner.vgpu.placement_policies import Types


class GpuTransition(msgspec.Struct, frozen=True):
    """One GPU on its way to a goal: virtual functions go ``off``, come ``on``, MIG mode changes (``mode``)."""

    task: Task
    goal: Goal
    off: bool
    on: bool
    mode: bool

    @property
    def pci(self) -> str:
        return self.task.gpu.pci

    def destroy_vgpus(self, to_destroy: Sequence[PresentVgpu]) -> list[Action]:
        """Held ones first: waiting for them may be in vain, and nothing else is destroyed before."""
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
            (self.task.desired.passthrough, "the GPU is handed out"),
            (bound, f"its virtual function is handed out, {requested_by}"),
            (not wanted and explicit, f"not {requested_by}"),
            (self.mode, f"MIG mode goes {'on' if self.goal.mig else 'off'}"),
            (self.off or self.on, "virtual functions go off"),
            (self.goal.mixed_size != mixed_now(self.task), "mixed-size mode changes only without vGPUs"),
            (have > wanted and explicit, f"fewer {requested_by}"),
            (wanted, "in the way: the driver chooses the places of new ones itself, and ends complete only without it"),
        )
        why = next((text for applies, text in reasons if applies), "its GPU instance goes")
        if vgpu.held:
            why += f"; held by {', '.join(map(str, vgpu.holders))}, policy {self.task.policy.held}"
        return why

    def unbind_functions(self) -> list[Action]:
        """Virtual functions back from vfio-pci: those that were not asked for, all where functions go off."""
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
                reason="virtual functions go off" if self.off else f"not {self.task.requested_by}",
            )
            for f in gone
        ]

    def disable_functions(self) -> list[Action]:
        if not self.off:
            return []
        if not self.goal.functions:
            why = "the GPU is handed out" if self.task.desired.passthrough else self.task.requested_by
        elif self.mode:
            why = "MIG mode cannot change while they exist"
        else:
            why = f"{len(self.task.virtual.functions)} of them are too few"
        return [SetFunctions(gpu=self.pci, count=0, reason=why)]

    def enable_functions(self) -> list[Action]:
        if not self.on:
            return []
        why = self.task.requested_by if self.task.items or self.task.desired.functions else "as they were"
        return [SetFunctions(gpu=self.pci, count=self.goal.functions, reason=why)]

    def set_mixed_size(self, changes: bool) -> list[Action]:
        if not changes:
            return []
        requested = self.task.desired.mixed_size
        why = (
            self.task.requested_by
            if requested is not None
            else "as it was"
            if self.goal.mixed_size
            else f"what is {self.task.requested_by} does not fit in it"
        )
        return [SetMixedSize(gpu=self.pci, on=self.goal.mixed_size, reason=why)]

    def instance_placements(self, new: Sequence[Action]) -> dict[int, str]:
        """GPU instance id -> its placement, of those that stay and those that will be made."""
        gpu, family = self.task.gpu, self.task.family
        gone = self.mode or self.off or self.on
        out = {} if gone else {i.id: i.placement for i in gpu.instances}
        for action in new:
            if isinstance(action, Create) and family is not None:
                place = Placement.parse(action.placement)
                out = {n: p for n, p in out.items() if not Placement.parse(p).mask & place.mask}
                out[instance_id(family, place, bool(gpu.slots_mirrored), list(out))] = action.placement
        return out

    def create_vgpus(self, assignments: Sequence[FunctionAssignment], placements: dict[int, str]) -> list[Action]:
        recorded = {v.uuid for v in self.task.virtual.recorded_vgpus}
        return [
            CreateVgpu(
                gpu=self.pci,
                function=c.function,
                type_id=c.item.type.id or 0,
                type=c.item.type.name,
                uuid=c.uuid,
                placement=c.placement if self.goal.mixed_size else None,
                instance=placements.get(c.placement) if self.goal.mig and c.placement is not None else None,
                reason=f"{self.task.requested_by}, as before the reboot"
                if c.uuid in recorded
                else self.task.requested_by,
            )
            for c in assignments
        ]

    def bind_functions(self) -> list[Action]:
        vfio_bound = {f.pci for f in self.task.virtual.functions if f.driver == VFIO} if not self.off else set()
        why = self.task.requested_by if self.task.desired.vfio_bound is not None else "as it was"
        missing = sorted(self.goal.vfio_bound - vfio_bound)
        return [SetPassthrough(gpu=self.pci, on=True, function=f, reason=why) for f in missing]


def nearest_around_held(task: Task, goal: Goal, held: Sequence[Vgpu]) -> Types:
    """The largest part of the wish that fits beside the held vGPUs, which it then contains. Empty if that is what was
    asked anyway, or if they are of no known type.
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
