"""The vGPU types that can be created on a GPU now, how many of each, and why others cannot."""

from __future__ import annotations

from typing import Literal

import msgspec

from aliquot.core.model.desired import RuleCode
from aliquot.core.model.inventory import Gpu, GpuVirtualization, Inventory
from aliquot.core.model.vgpu_types import VgpuTable, VgpuType
from aliquot.core.planner.restore_point import VFIO
from aliquot.core.planner.vgpu.function_assignment import usable_functions, uses_physical_function
from aliquot.core.planner.vgpu.mig_backed_search import instance_ids_by_vgpu
from aliquot.core.planner.vgpu.mixed_instances import instance_policy
from aliquot.core.planner.vgpu.placement_policies import (
    EqualSizePolicy,
    MixedSizePolicy,
    PlacedVgpu,
    PlacementPolicy,
    profile_of,
)
from aliquot.core.planner.vgpu.vm_rules import Q_SERIES_ONLY


class TypeAnswer(msgspec.Struct, frozen=True):
    """The answer for one vGPU type on one GPU."""

    name: str
    id: int | None
    series: str
    kind: str
    size_mib: int
    max: int
    per_vm: int
    """Largest number in one VM that NVIDIA supports."""
    now: int
    """How many more can be created without any other change."""
    profile: str = ""
    rule: RuleCode | Literal[""] = ""
    why: str = ""
    """The reason, in one sentence, why none can be created. ``rule`` is its code."""
    differs: str = ""
    """A contradiction by the driver. Empty if it agrees or has no list."""

    @property
    def creatable(self) -> bool:
        return self.now > 0


def type_answers(inventory: Inventory, gpu: Gpu) -> tuple[TypeAnswer, ...]:
    """Return an answer for every type of the GPU's table, in its order. Empty for a GPU without a table."""
    table = inventory.vgpu_table(gpu)
    if table is None:
        return ()
    evaluator = _TypeEvaluator(inventory, gpu, table)
    return tuple(evaluator.answer(each) for each in table.types)


def unlisted_types(inventory: Inventory, gpu: Gpu) -> dict[str, str]:
    """Return the types that the loaded driver cannot create at all, with the reason.

    The driver has a list, and these types are missing from it although nothing blocks them. If none of a series is
    listed, the whole series is included: a driver supports the C series, or A, B and Q.
    """
    answers = type_answers(inventory, gpu)
    missing = [a for a in answers if a.rule == "SERIES"]
    listed = set(gpu.virtual.creatable or ()) if gpu.virtual else set()
    listed_kinds = {(a.series, a.kind) for a in answers if a.id in listed}
    missing_kinds = {(a.series, a.kind) for a in missing} - listed_kinds
    out = {a.name: f"the loaded vGPU driver does not list {a.name}" for a in missing}
    for each in answers:
        if (each.series, each.kind) in missing_kinds:
            out[each.name] = f"the loaded vGPU driver lists no {each.series}-series type such as {each.name}"
    return out


class _TypeEvaluator:
    """Answers for one GPU in its present state."""

    def __init__(self, inventory: Inventory, gpu: Gpu, table: VgpuTable) -> None:
        self.inventory, self.gpu, self.table = inventory, gpu, table
        self.virtual = gpu.virtual or GpuVirtualization()
        carrying = set() if uses_physical_function(gpu) else {v.function for v in gpu.vgpus}
        bound = frozenset(f.pci for f in self.virtual.functions if f.driver == VFIO)
        self.free = (
            [pci for _, pci in usable_functions(gpu, bound) if pci not in carrying] if self._accepts_vgpus() else []
        )
        self.profiles: dict[str, int] = {}
        self.policy, self.state = self._placement_policy()

    def _accepts_vgpus(self) -> bool:
        return self.virtual.enabled or uses_physical_function(self.gpu)

    def _placement_policy(self) -> tuple[PlacementPolicy, object]:
        gpu, table = self.gpu, self.table
        placements = [v.placement for v in gpu.vgpus]
        policy: PlacementPolicy = MixedSizePolicy(table) if self.virtual.mixed_size else EqualSizePolicy()
        if gpu.mig.enabled:
            family = self.inventory.family(gpu)
            instances = instance_ids_by_vgpu(gpu, table, family)
            placements = [instances.get(n) for n in range(len(gpu.vgpus))]
            self.profiles = {name: p.id for name, p in family.by_name.items()}
            profiles_by_id = [(i.id, i.profile_id) for i in gpu.instances]
            policy = instance_policy(table, profiles_by_id, self.profiles, mixed=bool(gpu.mixed_size))
        known = [(table.by_id.get(v.type_id), s, v.placement) for v, s in zip(gpu.vgpus, placements, strict=True)]
        return policy, policy.initial_state(
            [PlacedVgpu(each, placement, inside) for each, placement, inside in known if each is not None]
        )

    def answer(self, vgpu_type: VgpuType) -> TypeAnswer:
        rule, why = self._permanent_reason(vgpu_type)
        now = 0
        if not why:
            now = self._count(vgpu_type)
            rule, why = ("", "") if now else self._full_reason(vgpu_type)
        differs = self._difference(vgpu_type, now)
        if now and differs:
            now, rule, why = 0, "SERIES", "the loaded vGPU driver does not list it"
        return TypeAnswer(
            name=vgpu_type.name,
            id=vgpu_type.id,
            series=vgpu_type.series,
            kind=vgpu_type.kind,
            size_mib=vgpu_type.fb_mib,
            max=vgpu_type.max,
            per_vm=1 if self.table.name in Q_SERIES_ONLY and vgpu_type.series != "Q" else vgpu_type.per_vm,
            now=now,
            profile=vgpu_type.profile,
            rule=rule,
            why=why,
            differs=differs,
        )

    def _permanent_reason(self, vgpu_type: VgpuType) -> tuple[RuleCode | Literal[""], str]:
        """Return what blocks every vGPU of this type in the present state of the GPU."""
        gpu, host, virtual = self.gpu, self.inventory.host, self.virtual
        ordinary = host is not None and host.vgpu_manager is False
        reasons: tuple[tuple[object, RuleCode, str], ...] = (
            (vgpu_type.id is None, "TYPE_WITHOUT_ID", "its id is unknown, so it cannot be created"),
            (gpu.lost, "GPU_LOST", "the GPU has fallen off the bus"),
            (gpu.passthrough, "PASSTHROUGH", "the GPU is passed through"),
            (gpu.virtual is None or ordinary, "NO_VGPU_DRIVER", "NVIDIA's vGPU host driver is not installed"),
            (not (virtual.framework or virtual.total), "NO_VGPU_DRIVER", "no vGPU driver is active on the GPU"),
            (virtual.total and host is not None and not host.iommu, "NO_IOMMU", "the IOMMU is off"),
            (
                vgpu_type.mig_backed and not gpu.mig.enabled,
                "MIG_TYPE",
                f"MIG mode is disabled: it needs a GPU instance {vgpu_type.profile}",
            ),
            (
                not vgpu_type.mig_backed and gpu.mig.enabled,
                "MIG_TYPE",
                "MIG mode is enabled: it needs the whole GPU",
            ),
            (not self._accepts_vgpus(), "NO_FUNCTION", "virtual functions are off"),
        )
        return next(((rule, why) for applies, rule, why in reasons if applies), ("", ""))

    def _count(self, vgpu_type: VgpuType) -> int:
        state, count = self.state, 0
        while count < len(self.free):
            found = self.policy.place(state, vgpu_type)
            if found is None:
                break
            state, count = found[0], count + 1
        return count

    def _full_reason(self, vgpu_type: VgpuType) -> tuple[RuleCode | Literal[""], str]:
        """Return why not one more of this type fits."""
        present = [self.table.by_id[v.type_id] for v in self.gpu.vgpus if v.type_id in self.table.by_id]
        if not self.free:
            return "NO_FUNCTION", "every virtual function has a vGPU or is passed through"
        if vgpu_type.mig_backed:
            wanted = profile_of(vgpu_type, self.profiles)
            instances = [i for i in self.gpu.instances if i.profile_id == wanted]
            what = (
                f"every GPU instance {vgpu_type.profile} is in use"
                if instances
                else f"the GPU has no GPU instance {vgpu_type.profile}"
            )
            return "NO_INSTANCE", what
        if self.virtual.mixed_size:
            places = len(vgpu_type.mixed)
            return (
                "MIXED_SIZE",
                f"none of its {places} placements is free" if places > 1 else "its only placement is not free",
            )
        other = next((t for t in present if t.fb_mib != vgpu_type.fb_mib), None)
        if other is not None:
            return "EQUAL_SIZE", f"all vGPUs of the GPU must have one size: it has {other.size_gib} GiB ({other.name})"
        return (
            "MAX_VGPUS",
            f"the GPU has {len(present)} vGPUs, and at most {vgpu_type.max} of {vgpu_type.short} fit on one GPU",
        )

    def _difference(self, vgpu_type: VgpuType, now: int) -> str:
        """Compare the driver's list of creatable types with the rules.

        In mixed-size mode the list lacks types that the driver accepts nevertheless, because it counts by the
        equal-size maximum. With unknown placements, nothing can be compared.
        """
        listed = self.virtual.creatable
        if listed is None or vgpu_type.id is None or not self.free:
            return ""
        if self.virtual.mixed_size:
            if any(v.placement is None for v in self.gpu.vgpus):
                return ""
            now = now if len(self.gpu.vgpus) < vgpu_type.max else 0
        if vgpu_type.id in listed and not now:
            return "the driver lists it as creatable"
        if vgpu_type.id not in listed and now:
            return "the driver does not list it as creatable"
        return ""
