"""The ordered actions of a GPU that is shared with virtual machines.

Destroy vGPUs and GPU instances, virtual functions off where they must be, MIG mode, virtual functions on, mixed-size
mode, GPU instances, vGPUs: the driver forgets everything later in this row when something earlier in it changes.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from aliquot.core.model.actions import Action, Create, CreateCompute, Destroy, DestroyCompute, SetPassthrough
from aliquot.core.model.desired import GpuWish
from aliquot.core.model.inventory import Gpu, GpuInstance, Inventory, Vgpu
from aliquot.core.model.plan import Blocker, Policy
from aliquot.core.planner import blockers as blocked
from aliquot.core.planner import gpu_plan as lane
from aliquot.core.planner import target_state as target
from aliquot.core.planner.gpu_plan import Lane
from aliquot.core.planner.rules import Refusal
from aliquot.core.planner.vgpu import actions as acts
from aliquot.core.planner.vgpu import blockers as blocking
from aliquot.core.planner.vgpu import fabric
from aliquot.core.planner.vgpu import passthrough as handing
from aliquot.core.planner.vgpu.function_assignment import carry
from aliquot.core.planner.vgpu.gpu_mode import Goal, Task, at_goal, goal, impossible, mixed_now, room, task, whole_wish
from aliquot.core.planner.vgpu.matching import Aim, Here
from aliquot.core.planner.vgpu.mig_backed_search import VgpuSearch, bare, here
from aliquot.core.planner.vgpu.placement_policies import MigRoom
from aliquot.core.planner.vgpu.placement_search import aim

replace = msgspec.structs.replace


class Changes(msgspec.Struct, frozen=True):
    """What changes around the vGPUs: MIG mode, virtual functions ``off`` or ``on`` (both: off and on again),
    mixed-size mode. A ``wipe`` leaves no GPU instance and no vGPU, ``clear`` no vGPU.
    """

    mode: bool
    off: bool
    on: bool
    mixed: bool

    @property
    def wipe(self) -> bool:
        return self.mode or self.off or self.on

    @property
    def clear(self) -> bool:
        return self.wipe or self.mixed


def plan_shares(inventory: Inventory, gpu: Gpu, wish: GpuWish, name: str, policy: Policy) -> Lane:
    """The lane that leads one GPU to its wish, where virtual functions, vGPUs or passthrough have to do with either."""
    if gpu.lost:
        return Lane(blockers=(blocked.lost(gpu),))
    asked = f'asked by "{name}"' if name else "asked"
    if gpu.passthrough:
        if wish.passthrough and handing.cut_off(gpu):
            again = SetPassthrough(
                gpu=gpu.pci, on=True, reason=f"{asked}; it has no driver: handing it out was cut off"
            )
            return Lane((again,))
        if wish.passthrough or not handing.needed_back(gpu, wish):
            return Lane()
        if gpu.holders and policy.held == "refuse":
            return Lane(blockers=(blocking.handed_out(gpu),))
        family = inventory.family(gpu) if gpu.mig.capable and gpu.family else None
        rest = _visible(inventory, handing.taken_back(gpu, family), wish, asked, policy)
        back = SetPassthrough(gpu=gpu.pci, on=False, reason=asked if wish.passthrough is False else f"{asked} of it")
        return rest if rest.blockers else replace(rest, actions=(back, *rest.actions))
    return _visible(inventory, gpu, wish, asked, policy)


def _visible(inventory: Inventory, gpu: Gpu, wish: GpuWish, asked: str, policy: Policy) -> Lane:
    """The lane of a GPU that the driver has."""
    if wish.passthrough:
        blocker = handing.why_not(inventory, gpu, wish, policy)
        if blocker is not None:
            return Lane(blockers=(blocker,))
        wish = replace(wish, instances=(), vgpus=(), functions=False if gpu.virtual else None, mixed=None, bound=None)
    t = task(inventory, gpu, wish, asked, policy)
    if isinstance(t, Blocker):
        return Lane(blockers=(t,))
    aimed = goal(t)
    if isinstance(aimed, Blocker):
        return Lane(blockers=(aimed,))
    found = _shares(t, aimed)
    if wish.passthrough and not found.blockers and not found.reboot:
        out = SetPassthrough(gpu=gpu.pci, on=True, reason=asked)
        return replace(found, actions=(*found.actions, out), notes=(*found.notes, *fabric.alone(inventory, gpu)))
    return found


def changes(t: Task, aimed: Goal) -> Changes:
    """What has to change around the vGPUs."""
    now, mig = len(t.virtual.functions), t.gpu.mig
    want = "enabled" if aimed.mig else "disabled"
    mode = t.family is not None and mig.capable and (mig.current, mig.pending) != (want, want)
    needs_reset = t.family is not None and t.family.mode.change_needs_gpu_reset
    off = now > 0 and (aimed.functions != now or (mode and (not aimed.mig or needs_reset)))
    on = aimed.functions > 0 and (off or now == 0)
    kept_mixed = mixed_now(t) and not (off or on)
    return Changes(mode, off, on, mixed=aimed.mixed != kept_mixed)


def _refused(t: Task, aimed: Goal, change: Changes) -> Blocker | None:
    """Return the first reason why the goal cannot be had, whatever instances and vGPUs would go for it."""
    refusal = impossible(t, aimed) or fabric.whole_vgpu(t) or handing.not_here(t, aimed, change.on)
    return refusal or _in_use(t, change)


def _shares(t: Task, aimed: Goal) -> Lane:
    change = changes(t, aimed)
    blocker = _refused(t, aimed, change)
    if blocker is not None:
        return Lane(blockers=(blocker,))
    evicted = [v for v in t.gpu.vgpus if v.function in aimed.bound]
    instances, vgpus = _instances(without(t, evicted), aimed, change)
    if instances.blockers or vgpus is None:
        return Lane(blockers=instances.blockers)
    blocker = _must_stay(t, aimed, [h.vgpu for h in vgpus.doomed], evicted)
    if blocker is not None:
        return Lane(blockers=(blocker,))
    vgpus = Aim(vgpus.kept, (*vgpus.doomed, *(Here(v, None) for v in evicted)), vgpus.made)
    kept = [h.vgpu for h in vgpus.kept]
    carried = carry(at_goal(t, aimed), vgpus.made, kept, aimed.bound)
    if isinstance(carried, Refusal):
        return Lane(blockers=(blocking.refused(t.gpu, carried, f"aliquot vgpu list {t.gpu.pci}"),))
    unlisted = handing.unlisted(t, [c.item.type.name for c in carried])
    if unlisted is not None:
        return Lane(blockers=(unlisted,))
    mode = Lane()
    if t.family is not None and t.gpu.mig.capable:
        mode = lane.change_mode(t.family, t.gpu, aimed.mig, t.asked, t.policy)
    if mode.blockers:
        return mode
    gone = [a for a in instances.actions if isinstance(a, Destroy | DestroyCompute)]
    new = [a for a in instances.actions if isinstance(a, Create | CreateCompute)]
    if (new or change.off or change.on) and t.gpu.holders and t.policy.held == "refuse":
        what = "no instance can be created" if new else "virtual functions cannot be switched"
        return Lane(blockers=(blocked.busy(t.gpu, what),))
    spoken = acts.Way(t, aimed, change.off, change.on, change.mode)
    before: list[Action] = [*spoken.destroyed(vgpus.doomed), *gone, *spoken.unbound()]
    before += [*spoken.mixed_size(change.mixed and not aimed.mixed), *spoken.functions_off()]
    if mode.reboot:
        return Lane((*before, *mode.actions), 0, (), True, mode.notes)
    after = [*spoken.functions_on(), *spoken.mixed_size(change.mixed and aimed.mixed), *new]
    after += [*spoken.created(carried, spoken.places(new)), *spoken.bound()]
    count = instances.kept + len(kept)
    return Lane((*before, *mode.actions, *after), count, (), False, mode.notes + instances.notes)


def without(t: Task, evicted: Sequence[Vgpu]) -> Task:
    """The task as if some vGPUs were not there: their functions are to be handed out."""
    if not evicted:
        return t
    names = {v.function for v in evicted}

    def instance(each: GpuInstance) -> GpuInstance:
        rest = tuple(h for h in each.holders if h.kind != "vgpu" or h.id not in names)
        return replace(each, holders=rest, held=bool(rest) or (each.held and not each.holders))

    vgpus = tuple(v for v in t.gpu.vgpus if v.function not in names)
    return replace(t, gpu=replace(t.gpu, vgpus=vgpus, instances=tuple(instance(i) for i in t.gpu.instances)))


def _instances(t: Task, aimed: Goal, change: Changes) -> tuple[Lane, Aim | None]:
    """What happens to GPU instances, and to the vGPUs in them (or to all vGPUs, without MIG mode)."""
    everything = tuple(Here(v, t.table.by_id.get(v.type_id) if t.table else None, v.placement) for v in t.gpu.vgpus)
    held = [v for v in t.gpu.vgpus if v.held]
    gone = change.wipe or (not aimed.mig and t.gpu.mig.enabled)
    if held and gone and t.wish.vgpus is not None and t.policy.held == "refuse":
        return Lane(blockers=(_held(t, aimed, held),)), None
    if not aimed.mig:
        cut = _destroyed(t, lane.MIG_OFF)
        if cut.blockers:
            return cut, None
        return cut, _without_mig(t, aimed, change, everything)
    if change.wipe:
        cut = _destroyed(t, lane.MIG_OFF if change.mode else "switching virtual functions takes them away")
        wanted = whole_wish(t.wish.instances, t.gpu)
        found, vgpus = _with_mig(replace(t, gpu=_emptied(t.gpu), wish=replace(t.wish, instances=wanted)))
        lost = Lane(blockers=cut.blockers or found.blockers)
        if lost.blockers or vgpus is None:
            return lost, None
        return replace(found, actions=(*cut.actions, *found.actions)), Aim((), everything, vgpus.made)
    return _with_mig(t)


def _without_mig(t: Task, aimed: Goal, change: Changes, everything: tuple[Here, ...]) -> Aim | None:
    if t.wish.vgpus is None:
        return Aim((), everything, ()) if change.clear else Aim(everything, (), ())
    stay = () if change.clear else everything
    if t.table is None:
        return Aim((), everything, ())
    found = aim(room(t, aimed.mixed), t.items, stay)
    return found if found is None or stay else Aim((), everything, found.made)


def _destroyed(t: Task, why: str) -> Lane:
    """Every GPU instance goes."""
    if not t.gpu.instances:
        return Lane()
    gpu = t.gpu if t.wish.vgpus is None else bare(t.gpu)
    return lane.change_instances(target.Search(t.board, gpu, ()), (), why, t.asked, t.policy)


def _emptied(gpu: Gpu) -> Gpu:
    return replace(gpu, instances=(), vgpus=())


def _with_mig(t: Task) -> tuple[Lane, Aim | None]:
    """GPU instances and the vGPUs in them, in MIG mode that is on (or comes on, with nothing there)."""
    assert t.family is not None
    present = here(t.gpu, t.table, t.family) if t.table else [Here(v, None) for v in t.gpu.vgpus]
    instances = t.wish.instances
    if t.wish.vgpus is None:
        search: target.Search = target.Search(t.board, t.gpu, instances or ())
    elif t.table is None or instances is None:
        return _left_alone(t, present)
    else:
        search = VgpuSearch(t.board, t.gpu, instances, t.table, t.items)
    if instances is None:
        return Lane(kept=len(t.gpu.instances)), Aim(tuple(present), (), ())
    blocker = blocked.infeasible(t.board, t.gpu, instances) if instances else None
    if blocker is not None:
        return Lane(blockers=(blocker,)), None
    found = search.aim()
    if found is None:
        return Lane(blockers=(_no_room(t),)), None
    if isinstance(search, VgpuSearch):
        vgpus = search.vgpu_aim(found.placed)
        assert vgpus is not None
        held = [h.vgpu for h in vgpus.doomed if h.vgpu.held]
        if held and t.policy.held == "refuse":
            return Lane(blockers=(_held(t, Goal(True, 0, False), held),)), None
    else:
        # Only force reaches a vGPU that nobody named: the instance under it counts as held.
        under = {i.id for i in found.doomed}
        lost = [h for h in present if h.spot in under and t.policy.held == "force"]
        stay = [h for h in present if h not in lost]
        vgpus = Aim(tuple(h for h in stay if h.spot not in under), tuple(lost), ())
    return lane.change_instances(search, instances, "", t.asked, t.policy), vgpus


def _left_alone(t: Task, present: Sequence[Here]) -> tuple[Lane, Aim | None]:
    """The GPU instances stay as they are: the vGPUs must do with them."""
    assert t.family is not None
    if t.table is None:
        return Lane(kept=len(t.gpu.instances)), Aim((), tuple(present), ())
    profiles = {name: p.id for name, p in t.family.by_name.items()}
    rooms = MigRoom(t.table, [(i.id, i.profile_id) for i in t.gpu.instances], profiles)
    found = aim(rooms, t.items, present)
    if found is None:
        return Lane(blockers=(_no_room(t),)), None
    return Lane(kept=len(t.gpu.instances)), found


def _no_room(t: Task) -> Blocker:
    missing = ", ".join(dict.fromkeys(i.type.profile for i in t.items))
    why = f"its GPU instances have no room for the vGPUs asked (they need {missing})"
    return blocking.refused(t.gpu, Refusal("NO_INSTANCE", why))


def _held(t: Task, aimed: Goal, held: Sequence[Vgpu]) -> Blocker:
    """Held vGPUs are in the way; the nearest wish keeps them."""
    what = "it cannot become what was asked" if t.items else "its vGPUs cannot be destroyed"
    near = acts.around_held(t, aimed, [v for v in t.gpu.vgpus if v.held])
    return blocking.held(t.gpu, what, held, near)


def _must_stay(t: Task, aimed: Goal, doomed: Sequence[Vgpu], evicted: Sequence[Vgpu]) -> Blocker | None:
    """Why vGPUs that are in the way may not go under this policy."""
    if t.wish.vgpus is None and t.policy.held != "force" and any(not v.held for v in doomed):
        return _unspoken(t, doomed)
    held = [v for v in (*doomed, *evicted) if v.held]
    return _held(t, aimed, held) if held and t.policy.held == "refuse" else None


def _unspoken(t: Task, vgpus: Sequence[Vgpu]) -> Blocker:
    """vGPUs that no machine has open, in the way of a wish that does not speak of them: of a MIG file or label, which
    cannot. Whose they are is not ours to guess.
    """
    listed = [f"{v.type} on {v.function}" for v in vgpus]
    holders = [h for v in vgpus for h in v.holders]
    what = "it cannot become what was asked"
    way = f"aliquot plan --gpu {t.gpu.pci} --vgpu none"
    return blocking.functions_in_use(t.gpu, what, holders, listed, way)


def _in_use(t: Task, change: Changes) -> Blocker | None:
    """Virtual functions that must go and carry what the wish does not speak of."""
    if not change.off or t.policy.held == "force":
        return None
    vgpus = {v.function for v in t.gpu.vgpus}
    busy = [f for f in t.virtual.functions if f.holders and f.pci not in vgpus]
    if busy and t.policy.held == "refuse":
        holders = [h for f in busy for h in f.holders]
        names = [f.pci for f in busy]
        return blocking.functions_in_use(t.gpu, "they cannot be switched off", holders, names)
    if t.gpu.vgpus and t.wish.vgpus is None and t.wish.functions is False:
        listed = [f"{v.type} on {v.function}" for v in t.gpu.vgpus]
        holders = [h for v in t.gpu.vgpus for h in v.holders]
        way = f"aliquot plan --gpu {t.gpu.pci} --vgpu none"
        return blocking.functions_in_use(t.gpu, "they cannot be switched off", holders, listed, way)
    return None
