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
from aliquot.core.planner.vgpu.function_assignment import Carried
from aliquot.core.planner.vgpu.gpu_mode import Goal, Task, fits_empty, mixed_now, worth_proposing
from aliquot.core.planner.vgpu.matching import Here
from aliquot.core.planner.vgpu.placement_policies import Types


class Way(msgspec.Struct, frozen=True):
    """One GPU on its way to a goal: virtual functions go ``off``, come ``on``, MIG mode changes (``mode``)."""

    task: Task
    goal: Goal
    off: bool
    on: bool
    mode: bool

    @property
    def pci(self) -> str:
        return self.task.gpu.pci

    def destroyed(self, doomed: Sequence[Here]) -> list[Action]:
        """Held ones first: waiting for them may be in vain, and nothing else is destroyed before."""
        ordered = sorted((h.vgpu for h in doomed), key=lambda v: not v.held)
        return [
            DestroyVgpu(
                gpu=self.pci,
                function=v.function,
                type_id=v.type_id,
                type=v.type,
                uuid=v.uuid,
                claim=v.claim,
                reason=self._why(v),
            )
            for v in ordered
        ]

    def _why(self, vgpu: Vgpu) -> str:
        wanted = sum(i.wish.type_id == vgpu.type_id for i in self.task.items)
        have = sum(v.type_id == vgpu.type_id for v in self.task.gpu.vgpus)
        if self.task.wish.passthrough:
            why = "the GPU is handed out"
        elif vgpu.function in self.goal.bound:
            why = f"its virtual function is handed out, {self.task.asked}"
        elif not wanted and self.task.wish.vgpus is not None:
            why = f"not {self.task.asked}"
        elif self.mode:
            why = f"MIG mode goes {'on' if self.goal.mig else 'off'}"
        elif self.off or self.on:
            why = "virtual functions go off"
        elif self.goal.mixed != mixed_now(self.task):
            why = "mixed-size mode changes only without vGPUs"
        elif have > wanted and self.task.wish.vgpus is not None:
            why = f"fewer {self.task.asked}"
        elif wanted:
            why = "in the way: the driver chooses the places of new ones itself, and ends complete only without it"
        else:
            why = "its GPU instance goes"
        if vgpu.held:
            why += f"; held by {', '.join(map(str, vgpu.holders))}, policy {self.task.policy.held}"
        return why

    def unbound(self) -> list[Action]:
        """Virtual functions back from vfio-pci: those that were not asked for, all where functions go off."""
        gone = [
            f.pci
            for f in self.task.virtual.functions
            if f.driver == VFIO and (self.off or f.pci not in self.goal.bound)
        ]
        return [
            SetPassthrough(
                gpu=self.pci,
                on=False,
                function=f,
                reason="virtual functions go off" if self.off else f"not {self.task.asked}",
            )
            for f in gone
        ]

    def functions_off(self) -> list[Action]:
        if not self.off:
            return []
        if not self.goal.functions:
            why = "the GPU is handed out" if self.task.wish.passthrough else self.task.asked
        elif self.mode:
            why = "MIG mode cannot change while they exist"
        else:
            why = f"{len(self.task.virtual.functions)} of them are too few"
        return [SetFunctions(gpu=self.pci, count=0, reason=why)]

    def functions_on(self) -> list[Action]:
        if not self.on:
            return []
        why = self.task.asked if self.task.items or self.task.wish.functions else "as they were"
        return [SetFunctions(gpu=self.pci, count=self.goal.functions, reason=why)]

    def mixed_size(self, changes: bool) -> list[Action]:
        if not changes:
            return []
        wish = self.task.wish.mixed
        why = (
            self.task.asked
            if wish is not None
            else "as it was"
            if self.goal.mixed
            else f"what is {self.task.asked} does not fit in it"
        )
        return [SetMixedSize(gpu=self.pci, on=self.goal.mixed, reason=why)]

    def places(self, new: Sequence[Action]) -> dict[int, str]:
        """GPU instance id -> its placement, of those that stay and those that will be made."""
        gpu, family = self.task.gpu, self.task.family
        gone = self.mode or self.off or self.on
        out = {} if gone else {i.id: i.placement for i in gpu.instances}
        for action in new:
            if isinstance(action, Create) and family is not None:
                place = Placement.parse(action.placement)
                out = {n: p for n, p in out.items() if not Placement.parse(p).mask & place.mask}
                out[instance_id(family, place, bool(gpu.swapped), list(out))] = action.placement
        return out

    def created(self, carried: Sequence[Carried], places: dict[int, str]) -> list[Action]:
        former = {v.uuid for v in self.task.virtual.remembered}
        return [
            CreateVgpu(
                gpu=self.pci,
                function=c.function,
                type_id=c.item.type.id or 0,
                type=c.item.type.name,
                uuid=c.uuid,
                placement=c.spot if self.goal.mixed else None,
                instance=places.get(c.spot) if self.goal.mig and c.spot is not None else None,
                reason=f"{self.task.asked}, as before the reboot" if c.uuid in former else self.task.asked,
            )
            for c in carried
        ]

    def bound(self) -> list[Action]:
        here = {f.pci for f in self.task.virtual.functions if f.driver == VFIO} if not self.off else set()
        why = self.task.asked if self.task.wish.bound is not None else "as it was"
        missing = sorted(self.goal.bound - here)
        return [SetPassthrough(gpu=self.pci, on=True, function=f, reason=why) for f in missing]


def around_held(t: Task, aimed: Goal, held: Sequence[Vgpu]) -> Types:
    """The largest part of the wish that fits beside the held vGPUs, which it then contains. Empty if that is what was
    asked anyway, or if they are of no known type.
    """
    if t.table is None or not t.items:
        return []
    stay = [t.table.by_id[v.type_id] for v in held if v.type_id in t.table.by_id]
    if not stay:
        return []

    def beside(some: Types) -> Types:
        return rules.counted([*stay, *(each for each, n in some for _ in range(n))])

    def feasible(some: Types) -> bool:
        return fits_empty(t, beside(some), mixed=aimed.mixed)

    wanted = list(t.types)
    for each in stay:
        wanted = [(w, n - (w.name == each.name)) for w, n in wanted]
    near = beside(blocking.nearest([(w, n) for w, n in wanted if n > 0], feasible))
    open_way = near != t.types and worth_proposing(t, near) and fits_empty(t, near, mixed=aimed.mixed)
    return near if open_way else []
