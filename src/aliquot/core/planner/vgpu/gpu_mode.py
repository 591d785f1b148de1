"""The goal of a vGPU request for one GPU: MIG mode, virtual functions, mixed-size mode, and feasibility."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from aliquot.core.model.catalog import Family
from aliquot.core.model.desired import DesiredGpu, DesiredInstance
from aliquot.core.model.inventory import Gpu, GpuVirtualization, Inventory
from aliquot.core.model.plan import Blocker, Policy
from aliquot.core.model.structured_text import GpuPart, StructuredText
from aliquot.core.model.vgpu_scheduler import DEFAULT, FIXED, policy_of, scheduler_of
from aliquot.core.model.vgpu_types import VgpuTable
from aliquot.core.planner import blockers as blocked
from aliquot.core.planner import placement_search as pack
from aliquot.core.planner.placement_table import PlacementTable, compiled_table
from aliquot.core.planner.restore_point import VFIO
from aliquot.core.planner.rules import RuleRefusal, refusals
from aliquot.core.planner.vgpu import blockers as blocking
from aliquot.core.planner.vgpu import rules
from aliquot.core.planner.vgpu.function_assignment import usable_functions, uses_physical_function
from aliquot.core.planner.vgpu.instance_scheduler import sharing_profiles, unseen_instance
from aliquot.core.planner.vgpu.matching import WantedVgpu
from aliquot.core.planner.vgpu.mig_backed_search import VgpuSearch
from aliquot.core.planner.vgpu.mixed_instances import fewest_instances
from aliquot.core.planner.vgpu.naming import plan_command
from aliquot.core.planner.vgpu.placement_policies import (
    EqualSizePolicy,
    MixedSizePolicy,
    PlacementPolicy,
    Types,
    profile_of,
)
from aliquot.core.planner.vgpu.placement_search import find_vgpu_target as end_state


class Task(msgspec.Struct, frozen=True):
    """A GPU with the request for it, and what follows from both."""

    inventory: Inventory
    gpu: Gpu
    desired: DesiredGpu
    requested_by: str
    policy: Policy
    family: Family | None
    table: VgpuTable | None
    items: tuple[WantedVgpu, ...] = ()
    """The requested vGPUs with their types."""

    @property
    def virtual(self) -> GpuVirtualization:
        return self.gpu.virtual or GpuVirtualization()

    @property
    def types(self) -> Types:
        return rules.count_types(i.type for i in self.items)

    @property
    def placement_table(self) -> PlacementTable:
        assert self.family is not None
        return compiled_table(self.family)

    @property
    def mig_backed(self) -> bool:
        return any(i.type.mig_backed for i in self.items)


class Goal(msgspec.Struct, frozen=True):
    """The required state of a GPU before vGPUs are created."""

    mig: bool
    """MIG mode."""
    functions: int
    """Number of virtual functions."""
    mixed_size: bool
    vfio_bound: frozenset[str] = frozenset()
    """PCI addresses of virtual functions that are bound to vfio-pci."""
    scheduler: str = ""
    """The scheduler of time-sliced vGPUs, in MIG mode of each GPU instance that they can share. Empty if it is unknown
    or there is none.
    """


def resolve_task(
    inventory: Inventory, gpu: Gpu, desired_gpu: DesiredGpu, requested_by: str, policy: Policy
) -> Task | Blocker:
    """Look up the vGPU types of a request. Returns a blocker if one is unknown or refuses parameters."""
    family = inventory.family(gpu) if gpu.mig.capable and gpu.family else None
    table = inventory.vgpu_table(gpu)
    items: list[WantedVgpu] = []
    shared = uses_physical_function(gpu)
    for each in desired_gpu.vgpus or ():
        found = rules.find_type(table, each.type_id, each.type, gpu.product)
        if isinstance(found, RuleRefusal):
            return blocking.refused(gpu, found)
        refusal = None if desired_gpu.restoring else rules.parameter_refusal(found, each.parameters)
        if refusal is not None:
            return blocking.refused(gpu, refusal, StructuredText("aliquot vgpu types ", GpuPart(gpu.pci)))
        # If the GPU itself has all vGPUs, its address does not identify one.
        items.append(WantedVgpu(msgspec.structs.replace(each, function="") if shared else each, found))
    return Task(inventory, gpu, desired_gpu, requested_by, policy, family, table, tuple(items))


def find_goal(task: Task) -> Goal | Blocker:
    """Derive the goal from the request. Returns a blocker if the request contradicts itself or the GPU."""
    mig = task.desired.mig if task.desired.mig is not None else task.gpu.mig.enabled
    if task.items:
        if task.desired.mig is not None and task.desired.mig != task.mig_backed:
            name = task.items[0].type.name
            needs = "enabled" if task.mig_backed else "disabled"
            return blocking.refused(task.gpu, RuleRefusal("MIG_TYPE", f"{name} needs MIG mode {needs}"))
        mig = task.mig_backed
    if mig and task.family is None:
        return blocked.not_capable(task.gpu)
    functions = _functions(task)
    if isinstance(functions, Blocker):
        return functions
    mixed = _mixed(task, mig, functions)
    if isinstance(mixed, Blocker):
        return mixed
    scheduler = _scheduler(task, mig, functions, mixed)
    if isinstance(scheduler, RuleRefusal):
        return blocking.refused(task.gpu, scheduler, StructuredText("aliquot vgpu list ", GpuPart(task.gpu.pci)))
    return Goal(mig, functions, mixed, _bound(task, functions), scheduler)


def _functions(task: Task) -> int | Blocker:
    now, total = len(task.virtual.functions), task.virtual.total
    sriov = total > 0 or now > 0
    modes = task.desired.mixed_size or task.desired.scheduler not in (None, DEFAULT)
    vgpus = (task.items and sriov) or modes
    if task.desired.functions is False:
        if vgpus and sriov:
            what = "vGPUs" if task.items else "a mode of vGPUs"
            why = f"the request contains {what}, but disables the virtual functions that they need"
            return blocking.refused(task.gpu, RuleRefusal("NO_FUNCTION", why))
        return 0
    if not (task.desired.functions or task.desired.vfio_bound or vgpus):
        return now
    if not sriov and (task.table is None or task.table.sriov or task.desired.functions):
        return _no_sriov(task)
    known = {f.pci for f in task.virtual.functions} if now else set(task.virtual.addresses)
    named = {*(task.desired.vfio_bound or ()), *(i.request.function for i in task.items if i.request.function)}
    if named - set(task.virtual.addresses) - known:
        unknown = sorted(named - set(task.virtual.addresses) - known)
        return blocking.unknown_functions(task.gpu, "is not a virtual function of this GPU", unknown)
    enough = (
        now
        and len(task.items) <= len(usable_functions(task.gpu, frozenset(task.desired.vfio_bound or ())))
        and named <= known
    )
    return now if enough or now == total else total


def _no_sriov(task: Task) -> Blocker:
    why = "it has no virtual functions"
    if task.table is not None and task.table.sriov:
        why = "it offers no virtual functions (sriov_totalvfs is 0): turn on SR-IOV in the firmware"
        if task.gpu.virtual is None:
            return blocking.no_driver(task.gpu, "the state of the kernel was not read")
    elif task.table is not None:
        why += ": its vGPUs are mediated devices of the GPU itself"
    return blocking.refused(task.gpu, RuleRefusal("NO_FUNCTION", why), "aliquot show")


def _mixed(task: Task, mig: bool, functions: int) -> bool | Blocker:
    """Return the requested mixed-size mode. Without a request it stays, unless the vGPUs need it off."""
    if task.desired.mixed_size:
        if task.table is None:
            return blocking.refused(
                task.gpu, RuleRefusal("MIXED_SIZE", f"no vGPU types of {task.gpu.product} are known")
            )
        refusal = rules.no_mixed_size(task.table, mig)
        if refusal is None:
            return True
        without = plan_command(task.gpu, rules.counts_by_name(task.types)) if mig and task.items else None
        return blocking.refused(task.gpu, refusal, without)
    off = task.desired.mixed_size is False or policy_of(task.desired.scheduler or "") == FIXED
    if off or mig != task.gpu.mig.enabled or not functions or not mixed_now(task):
        return False
    return not task.items or fits_empty(task, task.types, mixed=True)


def _scheduler(task: Task, mig: bool, functions: int, mixed: bool) -> str | RuleRefusal:
    """Return the requested scheduler; without a request the present one. Empty where vGPUs share no time."""
    requested, sriov = task.desired.scheduler, task.table is None or task.table.sriov
    scheduler = requested if requested is not None else scheduler_of(task.gpu) if mig == task.gpu.mig.enabled else ""
    if requested is not None:
        shared = sharing_profiles(task.table, task.family)
        refusal = rules.scheduler_refusal(requested, task.inventory.driver, mig=mig, per_instance=bool(shared))
        if refusal is None and mig:
            refusal = rules.unseen_scheduler(unseen_instance(task.gpu, shared))
        if refusal is not None:
            return refusal
    if sriov and not functions and not mig:
        return ""
    parameters = () if task.desired.restoring else [i.request.parameters for i in task.items]
    return rules.scheduler_conflict(scheduler, mixed, parameters) or scheduler


def mixed_now(task: Task) -> bool:
    """Report whether the GPU is in mixed-size mode.

    If unknown, it is inferred from its vGPUs: they have placements, or two sizes.
    """
    if task.gpu.mig.enabled:
        return bool(task.gpu.mixed_size)
    if task.virtual.mixed_size is not None:
        return task.virtual.mixed_size
    known = [task.table.by_id[v.type_id].fb_mib for v in task.gpu.vgpus if task.table and v.type_id in task.table.by_id]
    return len(set(known)) > 1 or any(v.placement is not None for v in task.gpu.vgpus)


def instance_mode(task: Task, goal: Goal) -> bool | None:
    """Return the mixed-size mode that GPU instances must have. None leaves each as it is."""
    if goal.mig and policy_of(goal.scheduler) == FIXED:
        return False
    return True if goal.mig and goal.mixed_size else task.desired.mixed_size


def gpu_at_goal(task: Task, goal: Goal) -> Gpu:
    """Return the GPU with the virtual functions that it will have."""
    if goal.functions == len(task.virtual.functions):
        return task.gpu
    return msgspec.structs.replace(task.gpu, virtual=msgspec.structs.replace(task.virtual, functions=()))


def _bound(task: Task, functions: int) -> frozenset[str]:
    if not functions:
        return frozenset()
    if task.desired.vfio_bound is not None:
        return frozenset(task.desired.vfio_bound)
    wanted = {i.request.function for i in task.items}
    return frozenset(f.pci for f in task.virtual.functions if f.driver == VFIO and f.pci not in wanted)


def placement_policy(task: Task, mixed: bool) -> PlacementPolicy:
    """Return the policy by which a GPU without MIG mode places vGPUs."""
    assert task.table is not None
    return MixedSizePolicy(task.table) if mixed else EqualSizePolicy()


def fits_empty(task: Task, types: Types, *, mixed: bool) -> bool:
    """Report whether an empty GPU of this kind can hold these types, with unlimited functions."""
    assert task.table is not None
    if next(rules.refusals(task.table, types, mixed=mixed), None) is not None:
        return False
    if any(each.mig_backed for each, _ in types):
        return _layout_exists(task, types, mixed)
    policy = placement_policy(task, mixed)
    return end_state(policy, _unplaced(types), ()) is not None


def _unplaced(types: Types) -> list[WantedVgpu]:
    from aliquot.core.model.desired import DesiredVgpu

    return [WantedVgpu(DesiredVgpu(each.id or 0, each.name), each) for each, n in types for _ in range(n)]


def needed_instances(task: Task, types: Types, mixed: bool) -> dict[int, int]:
    """Return the GPU instances that MIG-backed vGPUs need, by profile id.

    Each size needs its own instances, but not in mixed-size mode.
    """
    assert task.family is not None
    assert task.table is not None
    profiles = {name: p.id for name, p in task.family.by_name.items()}
    if mixed:
        return fewest_instances(task.table, types, profiles)
    wanted: dict[tuple[int, int, int], int] = {}
    for each, n in types:
        key = (profile_of(each, profiles) or 0, each.fb_mib, max(1, each.per_instance))
        wanted[key] = wanted.get(key, 0) + n
    out: dict[int, int] = {}
    for (profile, _, most), n in wanted.items():
        out[profile] = out.get(profile, 0) - (-n // most)
    return out


def _layout_exists(task: Task, types: Types, mixed: bool) -> bool:
    if task.family is None:
        return False
    counts = needed_instances(task, types, mixed)
    if next(refusals(task.placement_table, counts), None) is not None:
        return False
    return next(pack.arrangements(task.placement_table, counts), None) is not None


def impossible(task: Task, goal: Goal) -> Blocker | None:
    """Return the reason why no state of this GPU meets the request. None if some state does."""
    if not task.items:
        return None
    assert task.table is not None
    types = task.types
    refusal = next(rules.refusals(task.table, types, mixed=goal.mixed_size), None)
    if refusal is None:
        refusal = _placement_refusal(task, goal)
    functions = usable_functions(gpu_at_goal(task, goal), goal.vfio_bound)
    if refusal is None and not uses_physical_function(task.gpu):
        bound_note = f" ({len(goal.vfio_bound)} are bound to {VFIO})" if goal.vfio_bound else ""
        refusal = rules.enough_functions([pci for _, pci in functions], len(task.items), bound_note)
    if refusal is None:
        return None
    most = len(functions)

    def feasible(types: Types) -> bool:
        return sum(n for _, n in types) <= most and fits_empty(task, types, mixed=goal.mixed_size)

    nearest = blocking.nearest(types, feasible)
    return blocking.impossible(
        task.gpu, types, refusal, nearest if worth_proposing(task, nearest) else [], goal.mixed_size
    )


def worth_proposing(task: Task, nearest: Types) -> bool:
    """Report whether a proposal contains all present vGPUs that were requested.

    It must also contain a new one if the request does.
    """
    present, given = Counter(v.type for v in task.gpu.vgpus), Counter({each.name: n for each, n in nearest})
    requested = Counter({each.name: n for each, n in task.types})
    return given >= present & requested and bool(given - present or not requested - present)


def _placement_refusal(task: Task, goal: Goal) -> RuleRefusal | None:
    """Check whether the driver's choices lead to a placement of all types, which are legal together."""
    if goal.mig:
        return _instance_refusal(task, goal)
    policy = placement_policy(task, goal.mixed_size)
    if end_state(policy, task.items, ()) is not None:
        return None
    if end_state(policy, _unplaced(task.types), ()) is not None:
        why = "the driver takes the first free placement of a size, which never leads to the requested placements"
        return RuleRefusal("MIXED_SIZE", why)
    return RuleRefusal("MIXED_SIZE", "each size has a placement, but no order of creation gives all of them one")


def _instance_refusal(task: Task, goal: Goal) -> RuleRefusal | None:
    assert task.table is not None
    instances: tuple[DesiredInstance, ...] | None = task.desired.instances
    if instances is None:
        return None
    found = blocked.find_infeasible(task.placement_table, task.gpu, instances) if instances else None
    if found is not None:
        why = found.refusal.message
        text = blocked.request_text(task.placement_table, instances)
        return RuleRefusal("NO_INSTANCE", f"they need the GPU instances {text}, which do not fit together: {why}")
    empty = msgspec.structs.replace(task.gpu, instances=(), vgpus=())
    mode = instance_mode(task, goal)
    if VgpuSearch(task.placement_table, empty, instances, task.table, task.items, mode).find_target() is None:
        text = blocked.request_text(task.placement_table, instances)
        return RuleRefusal("NO_INSTANCE", f"the GPU instances {text} have no space for them")
    return None


def wanted_instances(requests: Sequence[DesiredInstance] | None, gpu: Gpu) -> tuple[DesiredInstance, ...]:
    """Return the requested GPU instances, for a GPU that loses all of its own in the process."""
    from aliquot.core.planner.restore_point import instance_requests

    return tuple(requests) if requests is not None else instance_requests(gpu)
