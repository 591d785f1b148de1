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
from aliquot.core.model.desired import GpuWish, InstanceWish
from aliquot.core.model.inventory import Gpu, GpuInstance
from aliquot.core.model.placement import Placement
from aliquot.core.model.plan import Blocker, Policy
from aliquot.core.planner import blockers as blocked
from aliquot.core.planner import compute_instances as compute
from aliquot.core.planner import placement_search as pack
from aliquot.core.planner import target_state as target
from aliquot.core.planner.placement_table import Board, Placed, board

MIG_OFF = "MIG mode goes off"


class Lane(msgspec.Struct, frozen=True):
    """What happens to one GPU. ``kept`` counts GPU instances that no call reaches."""

    actions: tuple[Action, ...] = ()
    kept: int = 0
    blockers: tuple[Blocker, ...] = ()
    reboot: bool = False
    notes: tuple[str, ...] = ()


def plan_gpu(family: Family | None, gpu: Gpu, wish: GpuWish, name: str, policy: Policy) -> Lane:
    """The lane that leads one GPU from what it is to its wish, or the blockers in the way.

    ``family`` is None for a GPU without MIG; ``name`` is the named config, for reasons.
    """
    if gpu.lost:
        return Lane(blockers=(blocked.lost(gpu),))
    if family is None or not gpu.mig.capable:
        return Lane(blockers=(blocked.not_capable(gpu),)) if wish.mig else Lane()
    b = board(family)
    asked = f'asked by "{name}"' if name else "asked"
    wants_mig = gpu.mig.enabled if wish.mig is None else wish.mig
    instances = wish.instances if wants_mig else ()
    if instances:
        blocker = blocked.infeasible(b, gpu, instances)
        if blocker is not None:
            return Lane(blockers=(blocker,))
    if instances is None and wants_mig == gpu.mig.enabled:
        cut = Lane(kept=len(gpu.instances))
    else:
        cut = change_instances(
            target.Search(b, gpu, instances or ()), instances or (), "" if wants_mig else MIG_OFF, asked, policy
        )
    if cut.blockers:
        return cut
    mode = change_mode(family, gpu, wants_mig, asked, policy)
    if mode.blockers:
        return mode
    destroys = tuple(a for a in cut.actions if isinstance(a, Destroy | DestroyCompute))
    creates = tuple(a for a in cut.actions if isinstance(a, Create | CreateCompute))
    if creates and gpu.holders and policy.held == "refuse":
        return Lane(blockers=(blocked.busy(gpu, "no instance can be created"),))
    if mode.reboot:
        creates = ()
    return Lane(destroys + mode.actions + creates, cut.kept, (), mode.reboot, mode.notes + cut.notes)


def change_mode(family: Family, gpu: Gpu, enabled: bool, asked: str, policy: Policy) -> Lane:
    """Set MIG mode only where it differs, and reset only where the mode needs it.

    Ampere keeps the wish on the board and needs a reset (the driver does it inside the call on an idle GPU); Hopper
    and later change at once. In a guest with the GPU passed through a reset is not possible: only a reboot helps.
    """
    want = "enabled" if enabled else "disabled"
    if gpu.mig.current == want:
        if gpu.mig.pending == want:
            return Lane()
        reason = f"a change to {gpu.mig.pending} is pending and nobody asked for it"
        return Lane((SetMode(gpu=gpu.pci, mode=want, reason=reason),))
    if gpu.holders and policy.held == "refuse":
        return Lane(blockers=(blocked.busy(gpu, f"MIG mode cannot be {want}"),))
    actions: list[Action] = []
    if gpu.mig.pending != want or not family.mode.change_needs_gpu_reset:
        actions.append(SetMode(gpu=gpu.pci, mode=want, reason=asked))
    if not family.mode.change_needs_gpu_reset:
        return Lane(tuple(actions))
    if not gpu.reset or not policy.reset:
        return Lane(tuple(actions), reboot=True, notes=(_until_reboot(gpu, want, policy),))
    actions.append(
        Reset(gpu=gpu.pci, reason=f"MIG mode {want} becomes active with a GPU reset on {family.architecture}")
    )
    return Lane(tuple(actions))


def _until_reboot(gpu: Gpu, want: str, policy: Policy) -> str:
    """What a mode change waits for, and what to do then. A guest that has the whole GPU mostly cannot reset it: the
    GPU is reset with the virtual machine.
    """
    if not policy.reset:
        return f"GPU {gpu.pci}: MIG mode becomes {want} with the next reboot (the reset is skipped on request)"
    return (
        f"GPU {gpu.pci}: MIG mode becomes {want} when this virtual machine reboots (no reset is possible inside): "
        "reboot the virtual machine, then ask for the same again"
    )


def change_instances(
    search: target.Search, wishes: tuple[InstanceWish, ...], clear: str, asked: str, policy: Policy
) -> Lane:
    """Destroy what must go and create what is missing, on the GPU as ``search`` sees it. ``clear`` says why nothing can
    stay, where that is so.
    """
    b, gpu = search.board, search.gpu
    aim = search.aim()
    if aim is None:
        raise AssertionError(f"a feasible wish found no aim: {wishes}")
    held = [i for i in aim.doomed if i.held]
    held += [aim.kept[k] for k, c in aim.changes.items() if c.weight[0]]
    if held and policy.held == "refuse":
        return Lane(blockers=(blocked.held(b, gpu, wishes, held),))
    new = [k for k in aim.placed if k not in aim.kept]
    gone, order = sorted(aim.doomed, key=_held_first), pack.creation_order(b, new, b.mask(aim.kept), bool(gpu.swapped))
    moves = _moves(gone, order, search.fixed)
    whence = {to: _at(b, place) for place, to in moves.items()}
    actions: list[Action] = []
    for instance in gone:
        why = clear or _why_gone(b, instance, order, asked, moves.get(target.key(instance)))
        actions.append(_destroy(gpu, instance, why, policy))
    for place, change in sorted(aim.changes.items(), key=lambda item: item[1].weight):
        actions += _inside(gpu, aim.kept[place], change, asked)
    for place in order:
        actions.append(_create(b, gpu, place, aim, f"moved from {whence[place]}" if place in whence else asked))
    return Lane(tuple(actions), kept=len(aim.kept) - len(aim.changes))


def _held_first(instance: GpuInstance) -> tuple[bool, int]:
    """Waiting for a held instance may be in vain: nothing else is destroyed before."""
    return not instance.held, instance.id


def _moves(gone: Sequence[GpuInstance], new: Sequence[Placed], fixed: Collection[Placed]) -> dict[Placed, Placed]:
    """Which instances come again at another place, in the order of the acts. One that is held does not move: what is on
    it ends. At a place that somebody asked for comes what he asked for.
    """
    free, found = list(new), dict[Placed, Placed]()
    for instance in gone:
        to = next((place for place in free if place[0] == instance.profile_id), None)
        if to is not None:
            free.remove(to)
            if not instance.held and to not in fixed:
                found[target.key(instance)] = to
    return found


def _at(b: Board, place: Placed) -> Placement:
    return b.profiles[place[0]].placement(place[1])


def _why_gone(b: Board, instance: GpuInstance, new: Sequence[Placed], asked: str, to: Placed | None) -> str:
    in_way = next((k for k in new if b.masks[k] & instance.place.mask), None)
    why = f"in the way of {b.profiles[in_way[0]].name} at {_at(b, in_way)}" if in_way else ""
    if to is None:
        return why or f"not {asked}"
    return ", ".join(filter(None, (f"moves to {_at(b, to)}", why)))


def _destroy(gpu: Gpu, instance: GpuInstance, why: str, policy: Policy) -> Destroy:
    if instance.held:
        who = ", ".join(str(h) for h in instance.holders) or "a client"
        why += f"; held by {who}, policy {policy.held}"
    elif not instance.compute_instances:
        why += "; it has no compute instance"
    return Destroy(
        gpu=gpu.pci,
        instance=instance.id,
        profile=instance.profile,
        profile_id=instance.profile_id,
        placement=instance.placement,
        compute_instances=tuple(c.id for c in instance.compute_instances),
        reason=why,
    )


def _inside(gpu: Gpu, instance: GpuInstance, change: compute.ComputeChange, asked: str) -> list[Action]:
    where = f"inside the kept {instance.profile} at {instance.placement}"
    repair = "; the GPU instance had no compute instance" if not instance.compute_instances else ""
    gone: list[Action] = [
        DestroyCompute(
            gpu=gpu.pci, instance=instance.id, compute_instance=c.id, profile=c.profile, reason=f"not {asked} {where}"
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
            reason=f"{asked}, {where}{repair}",
        )
        for part in change.create
    ]


def _create(b: Board, gpu: Gpu, place: Placed, aim: target.Aim, asked: str) -> Create:
    profile = b.profiles[place[0]]
    first = b.choices(place[0], 0, bool(gpu.swapped))[0]
    reason = asked
    for key, instance in aim.kept.items():
        if first != place[1] and b.masks[place[0], first] & b.masks[key]:
            who = f", held by {instance.holders[0]}" if instance.holders else ""
            reason += f"; {Placement(first, profile.size)} is taken by the kept {instance.profile}{who}"
            break
    layout, starts = aim.layouts[place]
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
