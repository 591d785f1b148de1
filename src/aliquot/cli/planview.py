"""A plan for people: what is, what will be, and each action with its reason; or why there is no way."""

from __future__ import annotations

from aliquot.cli import colour, draw, following, vgpudraw
from aliquot.model.actions import (
    Action,
    CreateCompute,
    CreateVgpu,
    DestroyCompute,
    DestroyVgpu,
    SetFunctions,
    SetMixedSize,
    SetMode,
    SetPassthrough,
)
from aliquot.model.inventory import Gpu, Inventory
from aliquot.model.plan import Blocker, Plan

_VIRTUAL = (SetFunctions, SetMixedSize, CreateVgpu, DestroyVgpu, SetPassthrough)
_SETTINGS = (
    (SetFunctions, "virtual functions"),
    (SetMixedSize, "mixed-size mode"),
    (SetPassthrough, "passthrough"),
)
_TINTS = {"destroy": colour.RED, "create": colour.GREEN}


def text(plan: Plan, inventory: Inventory, tinted: bool) -> str:
    """The whole plan, drawn GPU by GPU."""
    gpus = [g for g in inventory.gpus if g.pci in plan.lanes]
    lefts = [draw.title(g) for g in gpus] + [s for g in gpus for s in _sides(g, plan.lanes[g.pci], inventory)]
    column = draw.width(lefts)
    lines: list[str] = []
    number = 1
    for gpu in gpus:
        lines += [*_gpu(gpu, plan.lanes[gpu.pci], inventory, column, number, tinted), ""]
        number += len(plan.lanes[gpu.pci])
    lines.append(figures(plan))
    return "\n".join(lines)


def _sides(gpu: Gpu, actions: tuple[Action, ...], inventory: Inventory) -> tuple[str, ...]:
    mig = (f"  now      {_now(gpu)}", f"  planned  {_planned(gpu, actions)}") if _cut(gpu, actions) else ()
    return (*mig, *_vgpu_sides(gpu, actions, inventory))


def _vgpu_sides(gpu: Gpu, actions: tuple[Action, ...], inventory: Inventory) -> tuple[str, ...]:
    """What virtual machines share, now and then; nothing where no action is about it."""
    if not any(isinstance(a, _VIRTUAL) for a in actions):
        return ()
    table = inventory.vgpu_table(gpu)
    after = [a.on for a in actions if isinstance(a, SetPassthrough) and not a.function]
    now = "passed through" if gpu.passthrough else vgpudraw.summary(vgpudraw.now(gpu, table))
    then = vgpudraw.summary(vgpudraw.planned(gpu, actions, table))
    return f"  now      {now}", f"  planned  {'passed through' if after and after[-1] else then}"


def _cut(gpu: Gpu, actions: tuple[Action, ...]) -> bool:
    """Whether MIG has a part in this lane."""
    return gpu.mig.enabled or not all(isinstance(a, _VIRTUAL) for a in actions)


def _now(gpu: Gpu) -> str:
    return draw.summary(draw.now(gpu)) if gpu.mig.enabled else f"MIG {gpu.mig.current}"


def _planned(gpu: Gpu, actions: tuple[Action, ...]) -> str:
    modes = [a.mode for a in actions if isinstance(a, SetMode)]
    if modes and modes[-1] == "disabled":
        return "MIG disabled"
    return draw.summary(draw.planned(gpu, actions))


def _gpu(
    gpu: Gpu, actions: tuple[Action, ...], inventory: Inventory, column: int, number: int, tinted: bool
) -> list[str]:
    lines = _mig_picture(gpu, actions, inventory, column, tinted) if _cut(gpu, actions) else []
    lines += _vgpu_picture(gpu, actions, inventory, column, tinted, "" if lines else draw.title(gpu))
    rows = []
    for offset, action in enumerate(actions):
        verb, letter, what = draw.act(action, gpu, actions)
        rows.append((f"{number + offset:>2}", f"{verb:<7}", letter, what, action.reason))
    return lines + [_tinted(line, tinted) for line in draw.table(rows)]


def _mig_picture(gpu: Gpu, actions: tuple[Action, ...], inventory: Inventory, column: int, tinted: bool) -> list[str]:
    family = inventory.family(gpu)
    now, planned = f"  now      {_now(gpu)}", f"  planned  {_planned(gpu, actions)}"
    after = draw.planned(gpu, actions) if not planned.endswith("MIG disabled") else ()
    return [
        draw.ruler(draw.title(gpu), family, column),
        draw.row(now, draw.now(gpu), family, column, tinted) if gpu.mig.enabled else now,
        draw.row(planned, after, family, column, tinted) if not planned.endswith("MIG disabled") else planned,
    ]


def _vgpu_picture(
    gpu: Gpu, actions: tuple[Action, ...], inventory: Inventory, column: int, tinted: bool, title: str
) -> list[str]:
    sides = _vgpu_sides(gpu, actions, inventory)
    if not sides:
        return []
    table = inventory.vgpu_table(gpu)
    shares = vgpudraw.now(gpu, table), vgpudraw.planned(gpu, actions, table)
    made = any(isinstance(a, CreateVgpu) for a in actions)
    modes = [a.mode for a in actions if isinstance(a, SetMode)]
    mig = modes[-1] == "enabled" if modes else gpu.mig.enabled
    if table is None or mig or not (gpu.vgpus or made) or not vgpudraw.drawable(gpu, table, (*shares[0], *shares[1])):
        return [*([title] if title else []), *sides]
    bars = [vgpudraw.bar(side, share, table, column, tinted) for side, share in zip(sides, shares, strict=True)]
    return [vgpudraw.ruler(title, table, column), *bars]


def _tinted(line: str, on: bool) -> str:
    verb = line.split()[1]
    return line.replace(verb, colour.paint(verb, _TINTS.get(verb, ""), on), 1) if verb in _TINTS else line


def figures(plan: Plan) -> str:
    """``3 kept, 2 to destroy, 1 to create, GPU 0000:41:00.0 to reset``."""
    if not plan.changes:
        return f"nothing to do: {kept(plan)} as asked" if plan.kept else "nothing to do"
    parts = [f"{plan.kept} kept", f"{plan.destroyed} to destroy", f"{plan.created} to create"]
    if _only_settings(plan):
        parts = []
    parts += [*_settings(plan, "to set"), *_modes(plan, "to set")]
    inner = sum(isinstance(a, CreateCompute | DestroyCompute) for a in plan.actions)
    parts += [f"{inner} compute instance {'change' if inner == 1 else 'changes'}"] if inner else []
    parts += [f"{_gpus(plan.resets)} to reset"] if plan.resets else []
    parts += [f"{_gpus(plan.reboots)} to wait for a reboot"] if plan.reboots else []
    return ", ".join(parts)


def _settings(plan: Plan, verb: str) -> list[str]:
    """``virtual functions of GPU 0000:41:00.0 to set``, and the like for passthrough and mixed-size mode."""
    parts = []
    for kind, what in _SETTINGS:
        gpus = tuple(dict.fromkeys(a.gpu for a in plan.actions if isinstance(a, kind)))
        parts += [f"{what} of {_gpus(gpus)} {verb}"] if gpus else []
    return parts


def _modes(plan: Plan, verb: str) -> list[str]:
    modes = len({a.gpu for a in plan.actions if isinstance(a, SetMode)})
    return [f"MIG mode of {'1 GPU' if modes == 1 else f'{modes} GPUs'} {verb}"] if modes else []


def deeds(plan: Plan) -> str:
    """A plan in the past tense: ``kept 3, destroyed 2, created 1``, and what was set and reset."""
    counts = f"kept {plan.kept}, destroyed {plan.destroyed}, created {plan.created}"
    parts = [*([] if _only_settings(plan) else [counts]), *_settings(plan, "set"), *_modes(plan, "set")]
    return ", ".join([*parts, *([f"{_gpus(plan.resets)} reset"] if plan.resets else [])])


def _only_settings(plan: Plan) -> bool:
    """Whether nothing is made or destroyed."""
    counted = plan.kept or plan.destroyed or plan.created
    return not counted and any(isinstance(a, kind) for a in plan.actions for kind, _ in _SETTINGS)


def _gpus(pcis: tuple[str, ...]) -> str:
    return f"GPU {', '.join(pcis)}" if len(pcis) < 3 else f"{len(pcis)} GPUs"


def kept(plan: Plan) -> str:
    """``3 instances are``, ``1 vGPU is``, and where the wish speaks of neither, ``the virtual functions are``."""
    gpus = plan.desired.gpus
    what = {"instance": any(w.instances for w in gpus), "vGPU": any(w.vgpus for w in gpus)}
    if not any(what.values()) and any(w.functions is not None or w.bound is not None for w in gpus):
        return "the virtual functions are"
    named = [name for name, asked in what.items() if asked] or ["instance"]
    return f"1 {named[-1]} is" if plan.kept == 1 else f"{plan.kept} {' and '.join(f'{n}s' for n in named)} are"


def blockers(plan: Plan, node: str = "") -> str:
    """Every blocker as people read it: the rule, what is in the way, who holds it, and what to type next."""
    return "\n".join(_blocker(b, node) for b in plan.blockers)


def _blocker(blocker: Blocker, node: str) -> str:
    lines = [f"blocked[{blocker.rule}]: {blocker.message}"]
    if blocker.slices:
        lines.append(f"  slices   {' '.join(map(str, blocker.slices))}")
    lines += [f"  holder   {holder}" for holder in blocker.holders]
    if blocker.suggestion and blocker.suggestion not in (blocker.next_step or ""):
        lines.append(f"  fits     {blocker.suggestion}")
    if blocker.next_step:
        lines.append(f"  next     {following.addressed(blocker.next_step, node)}")
    return "\n".join(lines)
