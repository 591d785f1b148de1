"""A plan for people: what is, what will be, and each action with its reason; or why there is no way."""

from __future__ import annotations

import msgspec

from aliquot.cli.framework import color as colour
from aliquot.cli.framework import next_command as following
from aliquot.cli.framework.views import gpu_drawing as draw
from aliquot.cli.framework.views import vgpu_drawing as vgpudraw
from aliquot.core.model.actions import (
    Action,
    CreateVgpu,
    DestroyVgpu,
    SetFunctions,
    SetMixedSize,
    SetMode,
    SetPassthrough,
)
from aliquot.core.model.inventory import Gpu, Inventory
from aliquot.core.model.plan import Blocker, Plan
from aliquot.core.rendering import action_text as acts
from aliquot.core.rendering import mig_picture
from aliquot.core.rendering import plan_summary as summary
from aliquot.core.rendering import vgpu_picture as shares

_VIRTUAL = (SetFunctions, SetMixedSize, CreateVgpu, DestroyVgpu, SetPassthrough)
_TINTS = {"destroy": colour.RED, "create": colour.GREEN}


def text(plan: Plan, inventory: Inventory, tinted: bool) -> str:
    """The whole plan, drawn GPU by GPU."""
    gpus, column = _measured(plan, inventory)
    lines: list[str] = []
    number = 1
    for gpu in gpus:
        lines += [*_gpu(gpu, plan.actions_by_gpu[gpu.pci], inventory, column, number, tinted), ""]
        number += len(plan.actions_by_gpu[gpu.pci])
    lines.append(summary.plan_text(plan))
    return "\n".join(lines)


def pictures(plan: Plan, inventory: Inventory) -> str:
    """Each GPU now and then, without the actions."""
    gpus, column = _measured(plan, inventory)
    return "\n\n".join("\n".join(_drawn(gpu, plan.actions_by_gpu[gpu.pci], inventory, column, False)) for gpu in gpus)


def _measured(plan: Plan, inventory: Inventory) -> tuple[list[Gpu], int]:
    """The GPUs that a plan is about, and the column at which their pictures start."""
    gpus = [g for g in inventory.gpus if g.pci in plan.actions_by_gpu]
    lefts = [mig_picture.title(g) for g in gpus] + [
        s for g in gpus for s in _sides(g, plan.actions_by_gpu[g.pci], inventory)
    ]
    return gpus, draw.width(lefts)


def _sides(gpu: Gpu, actions: tuple[Action, ...], inventory: Inventory) -> tuple[str, ...]:
    mig = (f"  now      {_now(gpu)}", f"  planned  {_planned(gpu, actions)}") if _shows_mig(gpu, actions) else ()
    return (*mig, *_vgpu_sides(gpu, actions, inventory))


def _vgpu_sides(gpu: Gpu, actions: tuple[Action, ...], inventory: Inventory) -> tuple[str, ...]:
    """What virtual machines share, now and then; nothing where no action is about it."""
    if not any(isinstance(a, _VIRTUAL) for a in actions):
        return ()
    table = inventory.vgpu_table(gpu)
    after = [a.on for a in actions if isinstance(a, SetPassthrough) and not a.function]
    now = "passed through" if gpu.passthrough else shares.summary(shares.current_vgpus(gpu, table))
    then = shares.summary(shares.planned_vgpus(gpu, actions, table))
    return f"  now      {now}", f"  planned  {'passed through' if after and after[-1] else then}"


def _shows_mig(gpu: Gpu, actions: tuple[Action, ...]) -> bool:
    """Whether MIG has a part in this lane."""
    return gpu.mig.enabled or not all(isinstance(a, _VIRTUAL) for a in actions)


def _now(gpu: Gpu) -> str:
    return mig_picture.summary(mig_picture.current_instances(gpu)) if gpu.mig.enabled else f"MIG {gpu.mig.current}"


def _planned(gpu: Gpu, actions: tuple[Action, ...]) -> str:
    modes = [a.mode for a in actions if isinstance(a, SetMode)]
    if modes and modes[-1] == "disabled":
        return "MIG disabled"
    return mig_picture.summary(mig_picture.planned_instances(gpu, actions))


def _gpu(
    gpu: Gpu, actions: tuple[Action, ...], inventory: Inventory, column: int, number: int, tinted: bool
) -> list[str]:
    lines = _drawn(gpu, actions, inventory, column, tinted)
    rows = []
    for offset, action in enumerate(actions):
        verb, letter, what = acts.describe_action(action, gpu, actions)
        rows.append((f"{number + offset:>2}", f"{verb:<7}", letter, what, action.reason))
    return lines + [_tinted(line, tinted) for line in draw.table(rows)]


def _drawn(gpu: Gpu, actions: tuple[Action, ...], inventory: Inventory, column: int, tinted: bool) -> list[str]:
    lines = _mig_picture(gpu, actions, inventory, column, tinted) if _shows_mig(gpu, actions) else []
    return lines + _vgpu_picture(gpu, actions, inventory, column, tinted, "" if lines else mig_picture.title(gpu))


def _mig_picture(gpu: Gpu, actions: tuple[Action, ...], inventory: Inventory, column: int, tinted: bool) -> list[str]:
    family = inventory.family(gpu)
    now, planned = f"  now      {_now(gpu)}", f"  planned  {_planned(gpu, actions)}"
    after = mig_picture.planned_instances(gpu, actions) if not planned.endswith("MIG disabled") else ()
    return [
        draw.ruler(mig_picture.title(gpu), family, column),
        draw.row(now, mig_picture.current_instances(gpu), family, column, tinted) if gpu.mig.enabled else now,
        draw.row(planned, after, family, column, tinted) if not planned.endswith("MIG disabled") else planned,
    ]


def _vgpu_picture(
    gpu: Gpu, actions: tuple[Action, ...], inventory: Inventory, column: int, tinted: bool, title: str
) -> list[str]:
    sides = _vgpu_sides(gpu, actions, inventory)
    if not sides:
        return []
    table = inventory.vgpu_table(gpu)
    found = shares.current_vgpus(gpu, table), shares.planned_vgpus(gpu, actions, table)
    made = any(isinstance(a, CreateVgpu) for a in actions)
    modes = [a.mode for a in actions if isinstance(a, SetMode)]
    mig = modes[-1] == "enabled" if modes else gpu.mig.enabled
    if table is None or mig or not (gpu.vgpus or made) or not shares.drawable(gpu, table, (*found[0], *found[1])):
        return [*([title] if title else []), *sides]
    bars = [vgpudraw.bar(side, share, table, column, tinted) for side, share in zip(sides, found, strict=True)]
    return [vgpudraw.ruler(title, table, column), *bars]


def _tinted(line: str, on: bool) -> str:
    verb = line.split()[1]
    return line.replace(verb, colour.paint(verb, _TINTS.get(verb, ""), on), 1) if verb in _TINTS else line


def blockers(plan: Plan, node: str = "") -> str:
    """Every blocker as people read it: the rule, what is in the way, who holds it, and what to type next. What is true
    of several GPUs is said once.
    """
    equal: dict[Blocker, list[Blocker]] = {}
    for each in plan.blockers:
        equal.setdefault(_without_gpu(each), []).append(each)
    return "\n".join(_blocker(same[0], [each.gpu for each in same if each.gpu], node) for same in equal.values())


def _without_gpu(blocker: Blocker) -> Blocker:
    """The blocker without its GPU's address: what several GPUs have in common."""
    message, step = (text and text.replace(blocker.gpu, "") for text in (blocker.message, blocker.next_step))
    return msgspec.structs.replace(blocker, gpu="", message=message, next_step=step)


def _blocker(blocker: Blocker, gpus: list[str], node: str) -> str:
    message, step = blocker.message, blocker.next_step
    if len(gpus) > 1:
        message = message.replace(f"GPU {blocker.gpu}", f"each of {len(gpus)} GPUs")
        step = step and step.replace(f"--gpu {blocker.gpu}", " ".join(f"--gpu {gpu}" for gpu in gpus))
    lines = [f"blocked[{blocker.rule}]: {message}"]
    if len(gpus) > 1:
        lines.append(f"  GPUs     {' '.join(gpus)}")
    if blocker.slices:
        lines.append(f"  slices   {' '.join(map(str, blocker.slices))}")
    lines += [f"  holder   {holder}" for holder in blocker.holders]
    if blocker.suggestion:
        lines.append(f"  nearest that fits: {blocker.suggestion}")
    if step:
        lines.append(f"  next     {following.addressed(step, node)}")
    return "\n".join(lines)
