"""A plan as text: the present and the planned layout, and each action with its reason; or the blockers."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import msgspec

from aliquot.cli.framework import color as colors
from aliquot.cli.framework import next_command as next_commands
from aliquot.cli.framework.views import gpu_drawing as draw
from aliquot.cli.framework.views import vgpu_drawing as vgpu_drawings
from aliquot.core.model.actions import (
    Action,
    CreateVgpu,
    DestroyVgpu,
    SetFunctions,
    SetMixedSize,
    SetMode,
    SetPassthrough,
    SetScheduler,
)
from aliquot.core.model.inventory import Gpu, Inventory
from aliquot.core.model.plan import Blocker, Plan
from aliquot.core.model.structured_text import GpuName, GpuOption, GpuPart, Part, StructuredText, parts_of
from aliquot.core.rendering import action_text as action_texts
from aliquot.core.rendering import gpu_groups, mig_picture
from aliquot.core.rendering import plan_summary as summary
from aliquot.core.rendering import vgpu_picture as shares

_VIRTUAL = (SetFunctions, SetMixedSize, SetScheduler, CreateVgpu, DestroyVgpu, SetPassthrough)
_TINTS = {"destroy": colors.RED, "create": colors.GREEN}


class _Change(msgspec.Struct, frozen=True):
    """GPUs that change alike: the title of their picture, the GPU to draw, and its actions."""

    title: str
    gpu: Gpu
    actions: tuple[Action, ...]


def text(plan: Plan, inventory: Inventory, tinted: bool, *, each: bool = False) -> str:
    """Return the whole plan, drawn GPU by GPU. GPUs that change alike are drawn once, unless ``each`` is set."""
    changes, column = _changes(plan, inventory, each=each)
    lines: list[str] = []
    number = 1
    for change in changes:
        lines += [*_drawn(change, inventory, column, tinted), *_actions(change, number, tinted), ""]
        number += len(change.actions)
    lines.append(summary.plan_text(plan))
    return "\n".join(lines)


def pictures(plan: Plan, inventory: Inventory) -> str:
    """Draw each GPU now and as planned, without the actions."""
    changes, column = _changes(plan, inventory, each=True)
    return "\n\n".join("\n".join(_drawn(change, inventory, column, False)) for change in changes)


def _changes(plan: Plan, inventory: Inventory, *, each: bool) -> tuple[list[_Change], int]:
    """Return what a plan does to GPUs, and the column at which their pictures start."""
    by_gpu = plan.actions_by_gpu

    def drawing(gpu: Gpu) -> Hashable:
        change = _Change("", gpu_groups.without_identity(gpu), by_gpu[gpu.pci])
        return (gpu.product, *_drawn(change, inventory, 0, False), *_actions(change, 0, False))

    groups = gpu_groups.group_gpus((g for g in inventory.gpus if g.pci in by_gpu), drawing, each=each)
    changes = [_Change(gpu_groups.group_title(g), gpu_groups.drawn_gpu(g), by_gpu[g[0].pci]) for g in groups]
    return changes, draw.width([line for c in changes for line in (c.title, *_sides(c.gpu, c.actions, inventory))])


def _sides(gpu: Gpu, actions: tuple[Action, ...], inventory: Inventory) -> tuple[str, ...]:
    mig = (f"  now      {_now(gpu)}", f"  planned  {_planned(gpu, actions)}") if _shows_mig(gpu, actions) else ()
    return (*mig, *_vgpu_sides(gpu, actions, inventory))


def _vgpu_sides(gpu: Gpu, actions: tuple[Action, ...], inventory: Inventory) -> tuple[str, ...]:
    """Return what VMs share, now and as planned; nothing if no action changes it."""
    if not any(isinstance(a, _VIRTUAL) for a in actions):
        return ()
    table = inventory.vgpu_table(gpu)
    after = [a.on for a in actions if isinstance(a, SetPassthrough) and not a.function]
    now = "passed through" if gpu.passthrough else shares.summary(shares.current_vgpus(gpu, table))
    then = shares.summary(shares.planned_vgpus(gpu, actions, table))
    return f"  now      {now}", f"  planned  {'passed through' if after and after[-1] else then}"


def _shows_mig(gpu: Gpu, actions: tuple[Action, ...]) -> bool:
    """Report whether the actions of a GPU concern MIG."""
    return gpu.mig.enabled or not all(isinstance(a, _VIRTUAL) for a in actions)


def _now(gpu: Gpu) -> str:
    return mig_picture.summary(mig_picture.current_instances(gpu)) if gpu.mig.enabled else f"MIG {gpu.mig.current}"


def _planned(gpu: Gpu, actions: tuple[Action, ...]) -> str:
    if _disables_mig(actions):
        return "MIG disabled"
    return mig_picture.summary(mig_picture.planned_instances(gpu, actions))


def _disables_mig(actions: tuple[Action, ...]) -> bool:
    modes = [a.mode for a in actions if isinstance(a, SetMode)]
    return bool(modes) and modes[-1] == "disabled"


def _actions(change: _Change, number: int, tinted: bool) -> list[str]:
    rows, verbs = [], []
    for offset, action in enumerate(change.actions):
        verb, letter, what = action_texts.describe_action(action, change.gpu, change.actions)
        rows.append((f"{number + offset:>2}", f"{verb:<7}", letter, what, action.reason))
        verbs.append(verb)
    return [_tinted(line, verb, tinted) for line, verb in zip(draw.table(rows), verbs, strict=True)]


def _drawn(change: _Change, inventory: Inventory, column: int, tinted: bool) -> list[str]:
    lines = _mig_picture(change, inventory, column, tinted) if _shows_mig(change.gpu, change.actions) else []
    return lines + _vgpu_picture(change, inventory, column, tinted, "" if lines else change.title)


def _mig_picture(change: _Change, inventory: Inventory, column: int, tinted: bool) -> list[str]:
    gpu, actions = change.gpu, change.actions
    family = inventory.family(gpu)
    now, planned = f"  now      {_now(gpu)}", f"  planned  {_planned(gpu, actions)}"
    if not _disables_mig(actions):
        planned = draw.row(planned, mig_picture.planned_instances(gpu, actions), family, column, tinted)
    return [
        draw.ruler(change.title, family, column),
        draw.row(now, mig_picture.current_instances(gpu), family, column, tinted) if gpu.mig.enabled else now,
        planned,
    ]


def _vgpu_picture(change: _Change, inventory: Inventory, column: int, tinted: bool, title: str) -> list[str]:
    gpu, actions = change.gpu, change.actions
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
    bars = [vgpu_drawings.bar(side, share, table, column, tinted) for side, share in zip(sides, found, strict=True)]
    return [vgpu_drawings.ruler(title, table, column), *bars]


def _tinted(line: str, verb: str, on: bool) -> str:
    return line.replace(verb, colors.paint(verb, _TINTS.get(verb, ""), on), 1) if verb in _TINTS else line


def blockers(plan: Plan, node: str = "", *, each: bool = False) -> str:
    """Return every blocker as text: the rule, what blocks the change, the holders, and the next command. A blocker of
    several GPUs is printed once, unless ``each`` is set.
    """
    equal: dict[Hashable, list[Blocker]] = {}
    for one in plan.blockers:
        equal.setdefault(one if each else _common(one), []).append(one)
    return "\n".join(_blocker(same[0], [one.gpu for one in same if one.gpu], node) for same in equal.values())


def _common(blocker: Blocker) -> Hashable:
    """Return what the blockers of several GPUs have in common: everything except which GPU it is."""

    def unnamed(text: str) -> tuple[Part, ...]:
        return tuple(
            msgspec.structs.replace(part, pci="") if isinstance(part, GpuPart) and part.pci == blocker.gpu else part
            for part in parts_of(text)
        )

    rest = msgspec.structs.replace(blocker, gpu="", text="", step=None)
    return rest, unnamed(blocker.text), None if blocker.step is None else unnamed(blocker.step)


def _of_each(text: str, blocker: Blocker, gpus: Sequence[str]) -> str:
    """Return a text of a blocker for several GPUs that have it."""

    def shown(part: Part) -> str:
        match part:
            case GpuName(pci=blocker.gpu, end=end):
                return f"each of {len(gpus)} GPUs{end}"
            case GpuOption(pci=blocker.gpu, counts_together=False):
                return " ".join(f"--gpu {gpu}" for gpu in gpus)
            case _:
                return str(StructuredText(part))

    return "".join(map(shown, parts_of(text)))


def _blocker(blocker: Blocker, gpus: list[str], node: str) -> str:
    message, step = blocker.message, blocker.next_step
    if len(gpus) > 1:
        message = _of_each(blocker.text, blocker, gpus)
        step = _of_each(blocker.step, blocker, gpus) if blocker.step else blocker.step
    lines = [f"blocked[{blocker.rule}]: {message}"]
    if len(gpus) > 1:
        lines.append(f"  GPUs     {' '.join(gpus)}")
    if blocker.slices:
        lines.append(f"  slices   {' '.join(map(str, blocker.slices))}")
    lines += [f"  holder   {holder}" for holder in blocker.holders]
    if blocker.suggestion:
        lines.append(f"  nearest that fits: {blocker.suggestion}")
    if step:
        more = "     and so for each of these GPUs" if len(gpus) > 1 and _is_typed_for_each(blocker) else ""
        lines.append(f"  next     {next_commands.addressed(step, node)}{more}")
    return "\n".join(lines)


def _is_typed_for_each(blocker: Blocker) -> bool:
    """Report whether the next command counts for its GPUs together, so that it must be typed for each GPU."""
    return any(isinstance(part, GpuOption) and part.counts_together for part in parts_of(blocker.step or ""))
