"""Search over GPU instances and the MIG-backed vGPUs in them, for the least destroyed of both."""

from __future__ import annotations

from collections.abc import Sequence

from aliquot.core.model.catalog import Family
from aliquot.core.model.desired import DesiredInstance
from aliquot.core.model.instance_ids import instance_id
from aliquot.core.model.inventory import Gpu, GpuInstance
from aliquot.core.model.placement import Placement
from aliquot.core.model.vgpu_types import VgpuTable
from aliquot.core.planner import placement_search as pack
from aliquot.core.planner import target_state as target
from aliquot.core.planner.placement_table import PlacedInstance, PlacementTable
from aliquot.core.planner.vgpu.matching import PresentVgpu, VgpuTarget, WantedVgpu
from aliquot.core.planner.vgpu.mixed_instances import instance_policy
from aliquot.core.planner.vgpu.placement_policies import profile_of
from aliquot.core.planner.vgpu.placement_search import find_vgpu_target


def without_idle_vgpus(gpu: Gpu) -> Gpu:
    """Return the GPU without idle vGPUs as holders.

    A request for vGPUs may destroy idle vGPUs, but not processes or vGPUs that a VM has open.
    """
    import msgspec

    busy = {v.function: v for v in gpu.vgpus if v.held}

    def instance(before: GpuInstance) -> GpuInstance:
        holders = tuple(h for h in before.holders if h.kind != "vgpu" or h.id in busy)
        held = before.held and not (before.holders and not holders)
        return msgspec.structs.replace(before, holders=holders, held=held)

    return msgspec.structs.replace(gpu, instances=tuple(instance(i) for i in gpu.instances))


def instance_ids_by_vgpu(gpu: Gpu, table: VgpuTable, family: Family) -> dict[int, int]:
    """Return the GPU instance id of each vGPU, by its index.

    If the driver does not report it, this is the instance that names the vGPU as its holder, else the lowest of its
    profile without one.
    """
    known = {n: v.gpu_instance for n, v in enumerate(gpu.vgpus) if v.gpu_instance is not None}
    profiles = {name: p.id for name, p in family.by_name.items()}
    for n, vgpu in enumerate(gpu.vgpus):
        if n in known:
            continue
        named = [i.id for i in gpu.instances if any(h.kind == "vgpu" and h.id == vgpu.function for h in i.holders)]
        each = table.by_id.get(vgpu.type_id)
        wanted = profile_of(each, profiles) if each else None
        likely = [i.id for i in gpu.instances if i.profile_id == wanted and i.id not in known.values()]
        if named or likely:
            known[n] = (named or likely)[0]
    return known


def present_vgpus(gpu: Gpu, table: VgpuTable, family: Family) -> list[PresentVgpu]:
    """Return the vGPUs of a GPU in MIG mode, each with its GPU instance."""
    instance_ids = instance_ids_by_vgpu(gpu, table, family)
    return [PresentVgpu(v, table.by_id.get(v.type_id), instance_ids.get(n)) for n, v in enumerate(gpu.vgpus)]


class VgpuSearch(target.TargetSearch):
    """A search for the GPU instances and the vGPUs of one GPU.

    The target destroys the fewest held things, then the fewest GPU instances and vGPUs together.
    """

    def __init__(
        self,
        placement_table: PlacementTable,
        gpu: Gpu,
        requests: Sequence[DesiredInstance],
        table: VgpuTable,
        items: Sequence[WantedVgpu],
        mixed_size: bool | None = None,
        *,
        switched: frozenset[int] = frozenset(),
    ) -> None:
        """Search for ``requests`` and ``items``. ``mixed_size`` is the mode that all GPU instances must have: vGPUs in
        one that must change do not stay. None leaves each as it is. Nor do those in GPU instances ``switched``, whose
        scheduler changes.
        """
        super().__init__(placement_table, without_idle_vgpus(gpu), requests)
        self.table = table
        self.items = items
        self.mixed_size = mixed_size
        self.switched = switched
        self.vgpus = present_vgpus(gpu, table, placement_table.family)
        self._profiles = {name: p.id for name, p in placement_table.family.by_name.items()}
        self._vgpu_targets: dict[frozenset[PlacedInstance], VgpuTarget | None] = {}

    def find_target(self) -> target.TargetState | None:
        found = super().find_target()
        return found if found is not None and self.vgpu_target(found.placed) is not None else None

    def _cost(self, grouping: target.Grouping, arrangement: tuple[PlacedInstance, ...]) -> pack.Cost:
        cost = super()._cost(grouping, arrangement)
        found = self.vgpu_target(arrangement) if cost is not target.WORST else None
        if found is None:
            return target.WORST
        held, gone = found.cost
        return cost[0] + held, cost[1] + gone, *cost[2:]

    def vgpu_target(self, arrangement: Sequence[PlacedInstance]) -> VgpuTarget | None:
        """Return the target state of the vGPUs on these GPU instances."""
        key = frozenset(arrangement)
        if key not in self._vgpu_targets:
            ids = self.ids(arrangement)
            profiles_by_id = [(n, place[0]) for place, n in ids.items()]
            policy = instance_policy(self.table, profiles_by_id, self._profiles, mixed=bool(self.mixed_size))
            as_wanted = {
                i.id for k, i in self.present.items() if k in key and self.mixed_size in (None, bool(i.mixed_size))
            }
            stays = (set(ids.values()) & as_wanted) - self.switched
            lost = [h for h in self.vgpus if h.placement not in stays]
            found = find_vgpu_target(policy, self.items, [h for h in self.vgpus if h.placement in stays])
            self._vgpu_targets[key] = found and VgpuTarget(found.retained, (*lost, *found.to_destroy), found.to_create)
        return self._vgpu_targets[key]

    def ids(self, arrangement: Sequence[PlacedInstance]) -> dict[PlacedInstance, int]:
        """Return the id of every GPU instance in an arrangement: its present id, or the one that the driver will
        assign.
        """
        slots_mirrored = bool(self.gpu.slots_mirrored)
        ids = {k: self.present[k].id for k in arrangement if k in self.present}
        new = [k for k in arrangement if k not in ids]
        for place in pack.creation_order(self.placement_table, new, self.placement_table.mask(ids), slots_mirrored):
            span = Placement(place[1], self.placement_table.profiles[place[0]].size)
            ids[place] = instance_id(self.placement_table.family, span, slots_mirrored, list(ids.values()))
        return ids
