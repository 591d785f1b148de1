"""The ordered actions of one GPU, each with its reason."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from aliquot.core.model.actions import (
    Action,
    ComputePart,
    Create,
    CreateCompute,
    Destroy,
    DestroyCompute,
    Reset,
    SetMode,
)
from aliquot.core.model.catalog import Family
from aliquot.core.model.desired import DesiredGpu, DesiredInstance
from aliquot.core.model.inventory import Gpu, GpuInstance, MigMode
from aliquot.core.model.placement import Placement
from aliquot.core.model.plan import Blocker, Policy
from aliquot.core.model.structured_text import StructuredText
from aliquot.core.planner import blockers as blocked
from aliquot.core.planner import compute_instances as compute
from aliquot.core.planner import placement_search as pack
from aliquot.core.planner import target_state as target
from aliquot.core.planner.placement_table import PlacedInstance, PlacementTable, compiled_table

replace = msgspec.structs.replace
MIG_DISABLED_REASON = "MIG mode will be disabled"


class GpuPlan(msgspec.Struct, frozen=True):
    """The plan for one GPU."""

    actions: tuple[Action, ...] = ()
    unchanged: int = 0
    """Number of GPU instances that no action touches."""
    blockers: tuple[Blocker, ...] = ()
    reboot: bool = False
    notes: tuple[str, ...] = ()


def plan_gpu(family: Family | None, gpu: Gpu, desired_gpu: DesiredGpu, name: str, policy: Policy) -> GpuPlan:
    """Return the actions that lead one GPU from its inventory to its desired state, or the blockers.

    ``family`` is None for a GPU without MIG. ``name`` is the named config, for reasons.
    """
    if gpu.lost:
        return GpuPlan(blockers=(blocked.lost(gpu),))
    if family is None or not gpu.mig.capable:
        return GpuPlan(blockers=(blocked.not_capable(gpu),)) if desired_gpu.mig else GpuPlan()
    table = compiled_table(family)
    requested_by = f'requested by "{name}"' if name else "requested"
    wants_mig = gpu.mig.enabled if desired_gpu.mig is None else desired_gpu.mig
    instances = desired_gpu.instances if wants_mig else ()
    blocker = blocked.infeasible(table, gpu, instances) if instances else None
    if blocker is not None:
        return GpuPlan(blockers=(blocker,))
    instance_plan = GpuPlan(unchanged=len(gpu.instances))
    if instances is not None or wants_mig != gpu.mig.enabled:
        search = target.TargetSearch(table, gpu, instances or ())
        clear_reason = "" if wants_mig else MIG_DISABLED_REASON
        instance_plan = change_instances(search, instances or (), clear_reason, requested_by, policy)
    if instance_plan.blockers:
        return instance_plan
    mode_plan = change_mode(family, gpu, wants_mig, requested_by, policy)
    if mode_plan.blockers:
        return mode_plan
    destroys = tuple(a for a in instance_plan.actions if isinstance(a, Destroy | DestroyCompute))
    creates = tuple(a for a in instance_plan.actions if isinstance(a, Create | CreateCompute))
    if creates and gpu.holders and policy.held == "refuse":
        return GpuPlan(blockers=(blocked.busy(gpu, "no instance can be created"),))
    actions = destroys + mode_plan.actions + (() if mode_plan.reboot else creates)
    return replace(mode_plan, actions=actions, unchanged=instance_plan.unchanged)


def change_mode(family: Family | None, gpu: Gpu, enabled: bool, requested_by: str, policy: Policy) -> GpuPlan:
    """Set MIG mode only if it differs, and reset only if the mode needs it.

    Ampere stores the mode on the board and needs a reset, which the driver does inside the call on an idle GPU. Hopper
    and later change at once. A guest cannot reset a GPU that is passed through to it, only a reboot helps.
    """
    if family is None or not gpu.mig.capable:
        return GpuPlan()
    want: MigMode = "enabled" if enabled else "disabled"
    if gpu.mig.current == want:
        if gpu.mig.pending == want:
            return GpuPlan()
        reason = f"the pending change to {gpu.mig.pending} was not requested"
        return GpuPlan((SetMode(gpu=gpu.pci, mode=want, reason=reason),))
    if gpu.holders and policy.held == "refuse":
        return GpuPlan(blockers=(blocked.busy(gpu, f"MIG mode cannot be {want}"),))
    actions: list[Action] = []
    if gpu.mig.pending != want or not family.mode.change_needs_gpu_reset:
        actions.append(SetMode(gpu=gpu.pci, mode=want, reason=requested_by))
    if not family.mode.change_needs_gpu_reset:
        return GpuPlan(tuple(actions))
    if not gpu.resettable or not policy.reset:
        return GpuPlan(tuple(actions), reboot=True, notes=(_until_reboot(gpu, want, policy),))
    actions.append(
        Reset(gpu=gpu.pci, reason=f"MIG mode {want} becomes active with a GPU reset on {family.architecture}")
    )
    return GpuPlan(tuple(actions))


def _until_reboot(gpu: Gpu, want: str, policy: Policy) -> str:
    """Return what a mode change waits for, and what to do then.

    A guest with a passed-through GPU mostly cannot reset it: the GPU is reset with the VM.
    """
    if not policy.reset:
        return f"GPU {gpu.pci}: MIG mode becomes {want} with the next reboot (the reset is skipped on request)"
    return (
        f"GPU {gpu.pci}: MIG mode becomes {want} when this VM reboots (a guest cannot reset the GPU): "
        "reboot the VM, then run the command again"
    )


def change_instances(
    search: target.TargetSearch,
    requests: tuple[DesiredInstance, ...],
    clear_reason: str,
    requested_by: str,
    policy: Policy,
) -> GpuPlan:
    """Destroy and create instances to reach the target of ``search``.

    ``clear_reason`` is the reason why no instance can stay, if that is the case.
    """
    table, gpu = search.placement_table, search.gpu
    end_state = search.find_target()
    if end_state is None:
        raise AssertionError(f"a feasible request has no target state: {requests}")
    held = [i for i in end_state.to_destroy if i.held]
    held += [end_state.retained[k] for k, c in end_state.changes.items() if c.weight[0]]
    if held and policy.held == "refuse":
        return GpuPlan(blockers=(blocked.held(table, gpu, requests, held),))
    new = [k for k in end_state.placed if k not in end_state.retained]
    gone = sorted(end_state.to_destroy, key=_held_first)
    order = pack.creation_order(table, new, table.mask(end_state.retained), bool(gpu.slots_mirrored))
    moves = _moves(gone, order, search.fixed)
    origins = {destination: _placement(table, place) for place, destination in moves.items()}
    actions: list[Action] = []
    for instance in gone:
        why = clear_reason or _destroy_reason(
            table, instance, order, requested_by, moves.get(target.placed_key(instance))
        )
        actions.append(_destroy(gpu, instance, why, policy))
    for place, change in sorted(end_state.changes.items(), key=lambda item: item[1].weight):
        actions += _change_compute(gpu, end_state.retained[place], change, requested_by)
    for place in order:
        why = StructuredText("moved from ", origins[place]) if place in origins else requested_by
        actions.append(_create(table, gpu, place, end_state, why))
    return GpuPlan(tuple(actions), unchanged=len(end_state.retained) - len(end_state.changes))


def _held_first(instance: GpuInstance) -> tuple[bool, int]:
    """Sort held instances first. Waiting for them may fail, so nothing else is destroyed before."""
    return not instance.held, instance.id


def _moves(
    gone: Sequence[GpuInstance], new: Sequence[PlacedInstance], fixed: Collection[PlacedInstance]
) -> dict[PlacedInstance, PlacedInstance]:
    """Return which instances are created again at another placement, in the order of the actions.

    A held instance does not move, because its work ends. A new instance at a requested placement counts as requested.
    """
    free, found = list(new), dict[PlacedInstance, PlacedInstance]()
    for instance in gone:
        destination = next((place for place in free if place[0] == instance.profile_id), None)
        if destination is not None:
            free.remove(destination)
            if not instance.held and destination not in fixed:
                found[target.placed_key(instance)] = destination
    return found


def _placement(table: PlacementTable, place: PlacedInstance) -> Placement:
    return table.profiles[place[0]].placement(place[1])


def _destroy_reason(
    table: PlacementTable,
    instance: GpuInstance,
    new: Sequence[PlacedInstance],
    requested_by: str,
    destination: PlacedInstance | None,
) -> str:
    blocking = next((k for k in new if table.masks[k] & instance.place.mask), None)
    why = []
    if destination is not None:
        why.append(StructuredText("moves to ", _placement(table, destination)))
    if blocking is not None:
        why.append(StructuredText("blocks ", (table.profiles[blocking[0]].name, _placement(table, blocking))))
    return StructuredText.joined(", ", why) if why else f"not {requested_by}"


def _destroy(gpu: Gpu, instance: GpuInstance, why: str, policy: Policy) -> Destroy:
    if instance.held:
        who = ", ".join(str(h) for h in instance.holders) or "a client"
        why = StructuredText(why, f"; held by {who}, policy {policy.held}")
    elif not instance.compute_instances:
        why = StructuredText(why, "; it has no compute instance")
    return Destroy(
        gpu=gpu.pci,
        instance=instance.id,
        profile=instance.profile,
        profile_id=instance.profile_id,
        placement=instance.placement,
        compute_instances=tuple(c.id for c in instance.compute_instances),
        reason=why,
    )


def _change_compute(gpu: Gpu, instance: GpuInstance, change: compute.ComputeChange, requested_by: str) -> list[Action]:
    where = StructuredText("inside the kept ", (instance.profile, instance.place))
    repair = "; the GPU instance had no compute instance" if not instance.compute_instances else ""
    not_requested = StructuredText(f"not {requested_by} ", where)
    requested = StructuredText(f"{requested_by}, ", where, repair)
    gone: list[Action] = [
        DestroyCompute(
            gpu=gpu.pci, instance=instance.id, compute_instance=c.id, profile=c.profile, reason=not_requested
        )
        for c in change.destroy
    ]
    return gone + [
        CreateCompute(
            gpu=gpu.pci,
            instance=instance.id,
            profile=part.profile,
            profile_id=part.profile_id,
            placement=part.placement,
            reason=requested,
        )
        for part in change.create
    ]


def _create(
    table: PlacementTable, gpu: Gpu, place: PlacedInstance, end_state: target.TargetState, requested_by: str
) -> Create:
    profile = table.profiles[place[0]]
    first = table.choices(place[0], 0, bool(gpu.slots_mirrored))[0]
    reason = requested_by
    for key, instance in end_state.retained.items():
        if first != place[1] and table.masks[place[0], first] & table.masks[key]:
            who = f", held by {instance.holders[0]}" if instance.holders else ""
            reason = StructuredText(
                reason, f"; {profile.placement(first)} is taken by the kept {instance.profile}{who}"
            )
            break
    layout, starts = end_state.layouts[place]
    change = compute.change(profile, (), layout, starts)
    parts: tuple[ComputePart, ...] = change.create if change else ()
    return Create(
        gpu=gpu.pci,
        profile=profile.name,
        profile_id=profile.id,
        placement=str(profile.placement(place[1])),
        compute=parts,
        reason=reason,
    )
