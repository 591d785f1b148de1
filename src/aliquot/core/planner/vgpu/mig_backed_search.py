"""GPU instances and the MIG-backed vGPUs in them, weighed together: which arrangement destroys the least of both."""

from __future__ import annotations

from collections.abc import Sequence

from aliquot.core.model.catalog import Family
from aliquot.core.model.desired import InstanceWish
from aliquot.core.model.instance_ids import instance_id
from aliquot.core.model.inventory import Gpu, GpuInstance
from aliquot.core.model.placement import Placement
from aliquot.core.model.vgpu_types import VgpuTable
from aliquot.core.planner import placement_search as pack
from aliquot.core.planner import target_state as target
from aliquot.core.planner.placement_table import Board, Placed
from aliquot.core.planner.vgpu.matching import Aim, Here, Item
from aliquot.core.planner.vgpu.placement_policies import MigRoom, profile_of
from aliquot.core.planner.vgpu.placement_search import aim


def bare(gpu: Gpu) -> Gpu:
    """The GPU with instances that are held by what a wish for vGPUs may not destroy: processes, and vGPUs that a
    virtual machine has open. An idle vGPU is in the wish's own hands.
    """
    import msgspec

    busy = {v.function: v for v in gpu.vgpus if v.held}

    def instance(each: GpuInstance) -> GpuInstance:
        found = tuple(h for h in each.holders if h.kind != "vgpu" or h.id in busy)
        lent = each.held and not (each.holders and not found)
        return msgspec.structs.replace(each, holders=found, held=lent)

    return msgspec.structs.replace(gpu, instances=tuple(instance(i) for i in gpu.instances))


def inside(gpu: Gpu, table: VgpuTable, family: Family) -> dict[int, int]:
    """Index of a vGPU -> id of the GPU instance that it is in. Where the driver does not tell, the instance that names
    it as its holder, else the lowest of its profile that has none yet.
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


def here(gpu: Gpu, table: VgpuTable, family: Family) -> list[Here]:
    """The vGPUs of a GPU in MIG mode, each with its GPU instance."""
    where = inside(gpu, table, family)
    return [Here(v, table.by_id.get(v.type_id), where.get(n)) for n, v in enumerate(gpu.vgpus)]


class VgpuSearch(target.Search):
    """The wish for the GPU instances and the vGPUs of one GPU. Its aim destroys the fewest held things, then the
    fewest GPU instances and vGPUs together.
    """

    def __init__(
        self, board: Board, gpu: Gpu, wishes: Sequence[InstanceWish], table: VgpuTable, items: Sequence[Item]
    ) -> None:
        super().__init__(board, bare(gpu), wishes)
        self.table = table
        self.items = items
        self.vgpus = here(gpu, table, board.family)
        self._profiles = {name: p.id for name, p in board.family.by_name.items()}
        self._aims: dict[frozenset[Placed], Aim | None] = {}

    def aim(self) -> target.Aim | None:
        found = super().aim()
        return found if found is not None and self.vgpu_aim(found.placed) is not None else None

    def _cost(self, grouping: target.Grouping, leaf: tuple[Placed, ...]) -> pack.Cost:
        cost = super()._cost(grouping, leaf)
        found = self.vgpu_aim(leaf) if cost is not target.WORST else None
        if found is None:
            return target.WORST
        held, gone = found.cost
        return cost[0] + held, cost[1] + gone, *cost[2:]

    def vgpu_aim(self, leaf: Sequence[Placed]) -> Aim | None:
        """The vGPUs' end state on these GPU instances."""
        key = frozenset(leaf)
        if key not in self._aims:
            ids = self.ids(leaf)
            room = MigRoom(self.table, [(n, place[0]) for place, n in ids.items()], self._profiles)
            stays = set(ids.values()) & {i.id for k, i in self.present.items() if k in key}
            lost = [h for h in self.vgpus if h.spot not in stays]
            found = aim(room, self.items, [h for h in self.vgpus if h.spot in stays])
            self._aims[key] = found and Aim(found.kept, (*lost, *found.doomed), found.made)
        return self._aims[key]

    def ids(self, leaf: Sequence[Placed]) -> dict[Placed, int]:
        """The id of every GPU instance in an arrangement: what it has, or what the driver will give it."""
        swapped = bool(self.gpu.swapped)
        ids = {k: self.present[k].id for k in leaf if k in self.present}
        new = [k for k in leaf if k not in ids]
        for place in pack.creation_order(self.board, new, self.board.mask(ids), swapped):
            span = Placement(place[1], self.board.profiles[place[0]].size)
            ids[place] = instance_id(self.board.family, span, swapped, list(ids.values()))
        return ids
