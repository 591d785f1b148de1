"""What a wish for vGPUs means for one GPU: mode, virtual functions, mixed-size mode, and whether it can be at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from aliquot.core.model.catalog import Family
from aliquot.core.model.desired import GpuWish, InstanceWish
from aliquot.core.model.inventory import Gpu, Inventory, Virtual
from aliquot.core.model.plan import Blocker, Policy
from aliquot.core.model.vgpu_types import VgpuTable
from aliquot.core.planner import blockers as blocked
from aliquot.core.planner import placement_search as pack
from aliquot.core.planner.placement_table import Board, board
from aliquot.core.planner.restore_point import VFIO
from aliquot.core.planner.rules import Refusal, refusals
from aliquot.core.planner.vgpu import blockers as blocking
from aliquot.core.planner.vgpu import rules
from aliquot.core.planner.vgpu.function_assignment import on_the_gpu_itself, usable
from aliquot.core.planner.vgpu.matching import Item
from aliquot.core.planner.vgpu.mig_backed_search import VgpuSearch
from aliquot.core.planner.vgpu.naming import plan_command
from aliquot.core.planner.vgpu.placement_policies import EqualRoom, MixedRoom, Room, Types, profile_of
from aliquot.core.planner.vgpu.placement_search import aim as end_state


class Task(msgspec.Struct, frozen=True):
    """One GPU and its wish, with what follows from both. ``items`` are the wanted vGPUs with their types."""

    inventory: Inventory
    gpu: Gpu
    wish: GpuWish
    asked: str
    policy: Policy
    family: Family | None
    table: VgpuTable | None
    items: tuple[Item, ...] = ()

    @property
    def virtual(self) -> Virtual:
        return self.gpu.virtual or Virtual()

    @property
    def types(self) -> Types:
        return rules.counted(i.type for i in self.items)

    @property
    def board(self) -> Board:
        assert self.family is not None
        return board(self.family)

    @property
    def backed(self) -> bool:
        return any(i.type.mig_backed for i in self.items)


class Goal(msgspec.Struct, frozen=True):
    """Where the GPU shall be before vGPUs are made: MIG mode, number of virtual functions (and their addresses that
    vfio-pci has), mixed-size mode.
    """

    mig: bool
    functions: int
    mixed: bool
    bound: frozenset[str] = frozenset()


def task(inventory: Inventory, gpu: Gpu, wish: GpuWish, asked: str, policy: Policy) -> Task | Blocker:
    """The wish with its types looked up, or why one of them cannot be."""
    family = inventory.family(gpu) if gpu.mig.capable and gpu.family else None
    table = inventory.vgpu_table(gpu)
    items: list[Item] = []
    shared = on_the_gpu_itself(gpu)
    for each in wish.vgpus or ():
        found = rules.find(table, each.type_id, each.type, gpu.product)
        if isinstance(found, Refusal):
            return blocking.refused(gpu, found)
        # Where the GPU itself carries all vGPUs, its address tells nothing about which.
        items.append(Item(msgspec.structs.replace(each, function="") if shared else each, found))
    return Task(inventory, gpu, wish, asked, policy, family, table, tuple(items))


def goal(t: Task) -> Goal | Blocker:
    """What the wish needs of the GPU, or why it contradicts itself or the card."""
    mig = t.wish.mig if t.wish.mig is not None else t.gpu.mig.enabled
    if t.items:
        if t.wish.mig is not None and t.wish.mig != t.backed:
            name = t.items[0].type.name
            needs = "on" if t.backed else "off"
            return blocking.refused(t.gpu, Refusal("MIG_TYPE", f"{name} needs MIG mode {needs}"))
        mig = t.backed
    if mig and t.family is None:
        return blocked.not_capable(t.gpu)
    functions = _functions(t)
    if isinstance(functions, Blocker):
        return functions
    mixed = _mixed(t, mig, functions)
    if isinstance(mixed, Blocker):
        return mixed
    return Goal(mig, functions, mixed, _bound(t, functions))


def _functions(t: Task) -> int | Blocker:
    now, total = len(t.virtual.functions), t.virtual.total
    sriov = total > 0 or now > 0
    wants = bool(t.wish.functions or t.wish.bound or t.wish.mixed or (t.items and sriov))
    if t.wish.functions is False:
        if t.items and sriov:
            why = "vGPUs are asked, and virtual functions, which carry them, are asked to be off"
            return blocking.refused(t.gpu, Refusal("NO_FUNCTION", why))
        return 0
    if not wants:
        return now
    if not sriov and (t.table is None or t.table.sriov or t.wish.functions):
        return _no_sriov(t)
    known = {f.pci for f in t.virtual.functions} if now else set(t.virtual.addresses)
    named = {*(t.wish.bound or ()), *(i.wish.function for i in t.items if i.wish.function)}
    if named - set(t.virtual.addresses) - known:
        unknown = sorted(named - set(t.virtual.addresses) - known)
        return blocking.outside(t.gpu, "is no virtual function of it", unknown)
    enough = now and len(t.items) <= len(usable(t.gpu, frozenset(t.wish.bound or ()))) and named <= known
    return now if enough or now == total else total


def _no_sriov(t: Task) -> Blocker:
    why = "it has no virtual functions"
    if t.table is not None and t.table.sriov:
        why = "it offers no virtual functions (sriov_totalvfs is 0): switch SR-IOV on in the firmware"
        if t.gpu.virtual is None:
            return blocking.no_driver(t.gpu, "the kernel was not asked about it")
    elif t.table is not None:
        why += ": its vGPUs are mediated devices of the GPU itself"
    return blocking.refused(t.gpu, Refusal("NO_FUNCTION", why), "aliquot show")


def _mixed(t: Task, mig: bool, functions: int) -> bool | Blocker:
    """Mixed-size mode as asked; where nothing was asked it stays, unless the vGPUs need it off."""
    if t.wish.mixed:
        if t.table is None:
            return blocking.refused(t.gpu, Refusal("MIXED_SIZE", f"no vGPU types of {t.gpu.product} are known"))
        refusal = rules.no_mixed_size(t.table, mig)
        if refusal is None:
            return True
        without = plan_command(t.gpu, rules.names(t.types)) if mig and t.items else None
        return blocking.refused(t.gpu, refusal, without)
    if t.wish.mixed is False or mig or not functions or not mixed_now(t):
        return False
    return not t.items or fits_empty(t, t.types, mixed=True)


def mixed_now(t: Task) -> bool:
    """Whether the GPU is in mixed-size mode. Where nobody can tell, its vGPUs do: they have places, or two sizes."""
    if t.virtual.mixed is not None:
        return t.virtual.mixed
    known = [t.table.by_id[v.type_id].fb_mib for v in t.gpu.vgpus if t.table and v.type_id in t.table.by_id]
    return not t.gpu.mig.enabled and (len(set(known)) > 1 or any(v.placement is not None for v in t.gpu.vgpus))


def at_goal(t: Task, aimed: Goal) -> Gpu:
    """The GPU with the virtual functions that it will have."""
    if aimed.functions == len(t.virtual.functions):
        return t.gpu
    return msgspec.structs.replace(t.gpu, virtual=msgspec.structs.replace(t.virtual, functions=()))


def _bound(t: Task, functions: int) -> frozenset[str]:
    if not functions:
        return frozenset()
    if t.wish.bound is not None:
        return frozenset(t.wish.bound)
    wanted = {i.wish.function for i in t.items}
    return frozenset(f.pci for f in t.virtual.functions if f.driver == VFIO and f.pci not in wanted)


def room(t: Task, mixed: bool) -> Room:
    """How a GPU without MIG mode takes vGPUs."""
    assert t.table is not None
    return MixedRoom(t.table) if mixed else EqualRoom()


def fits_empty(t: Task, types: Types, *, mixed: bool) -> bool:
    """Whether an empty GPU of this kind can hold these types, on functions without number."""
    assert t.table is not None
    if next(rules.refusals(t.table, types, mixed=mixed), None) is not None:
        return False
    if any(each.mig_backed for each, _ in types):
        return _layout_exists(t, types)
    chosen = room(t, mixed)
    return end_state(chosen, _anywhere(types), ()) is not None


def _anywhere(types: Types) -> list[Item]:
    from aliquot.core.model.desired import VgpuWish

    return [Item(VgpuWish(each.id or 0, each.name), each) for each, n in types for _ in range(n)]


def needed_instances(t: Task, types: Types) -> dict[int, int]:
    """GPU instances behind MIG-backed vGPUs: profile id -> number. Each size has instances of its own."""
    assert t.family is not None
    profiles = {name: p.id for name, p in t.family.by_name.items()}
    wanted: dict[tuple[int, int, int], int] = {}
    for each, n in types:
        key = (profile_of(each, profiles) or 0, each.fb_mib, max(1, each.per_instance))
        wanted[key] = wanted.get(key, 0) + n
    out: dict[int, int] = {}
    for (profile, _, most), n in wanted.items():
        out[profile] = out.get(profile, 0) - (-n // most)
    return out


def _layout_exists(t: Task, types: Types) -> bool:
    if t.family is None:
        return False
    counts = needed_instances(t, types)
    if next(refusals(t.board, counts), None) is not None:
        return False
    return next(pack.arrangements(t.board, counts), None) is not None


def impossible(t: Task, aim: Goal) -> Blocker | None:
    """Why no state of this GPU meets the wish, or None if some state does."""
    if not t.items:
        return None
    assert t.table is not None
    types = t.types
    refusal = next(rules.refusals(t.table, types, mixed=aim.mixed), None)
    if refusal is None:
        refusal = _no_room(t, aim)
    carriers = usable(at_goal(t, aim), aim.bound)
    if refusal is None and not on_the_gpu_itself(t.gpu):
        away = f" ({len(aim.bound)} are bound to {VFIO})" if aim.bound else ""
        refusal = rules.enough_functions([pci for _, pci in carriers], len(t.items), away)
    if refusal is None:
        return None
    most = len(carriers)

    def feasible(some: Types) -> bool:
        return sum(n for _, n in some) <= most and fits_empty(t, some, mixed=aim.mixed)

    near = blocking.nearest(types, feasible)
    return blocking.impossible(t.gpu, types, refusal, near if worth_proposing(t, near) else [], aim.mixed)


def worth_proposing(t: Task, near: Types) -> bool:
    """Whether these vGPUs have each one that is there and that was asked for, and a new one where the wish has one."""
    there, given = Counter(v.type for v in t.gpu.vgpus), Counter({each.name: n for each, n in near})
    asked = Counter({each.name: n for each, n in t.types})
    return given >= there & asked and bool(given - there or not asked - there)


def _no_room(t: Task, aim: Goal) -> Refusal | None:
    """The types are legal together; whether the driver's choices end with all of them in place is another matter."""
    if aim.mig:
        return _no_instance(t)
    chosen = room(t, aim.mixed)
    if end_state(chosen, t.items, ()) is not None:
        return None
    if end_state(chosen, _anywhere(t.types), ()) is not None:
        why = "the driver takes the first free place of a size, which never comes to the places that were asked"
        return Refusal("MIXED_SIZE", why)
    return Refusal("MIXED_SIZE", "each size has a place, but in no order do all of them get one")


def _no_instance(t: Task) -> Refusal | None:
    assert t.table is not None
    instances: tuple[InstanceWish, ...] | None = t.wish.instances
    if instances is None:
        return None
    found = blocked.infeasible(t.board, t.gpu, instances) if instances else None
    if found is not None:
        why = found.message.partition(": ")[2]
        text = blocked.asked_text(t.board, instances)
        return Refusal("NO_INSTANCE", f"they need the GPU instances {text}, which cannot be together: {why}")
    empty = msgspec.structs.replace(t.gpu, instances=(), vgpus=())
    if VgpuSearch(t.board, empty, instances, t.table, t.items).aim() is None:
        text = blocked.asked_text(t.board, instances)
        return Refusal("NO_INSTANCE", f"the GPU instances {text} have no room for them")
    return None


def whole_wish(wishes: Sequence[InstanceWish] | None, gpu: Gpu) -> tuple[InstanceWish, ...]:
    """The GPU instances that are wanted, for a GPU that loses all of its own on the way."""
    from aliquot.core.planner.restore_point import instance_wishes

    return tuple(wishes) if wishes is not None else instance_wishes(gpu)
