"""A plan for people: what is, what will be, and each action with its reason; or why there is no way."""

from __future__ import annotations

from aliquot.cli import colour, draw, following
from aliquot.model.actions import Action, CreateCompute, DestroyCompute, SetMode
from aliquot.model.inventory import Gpu, Inventory
from aliquot.model.plan import Blocker, Plan

_TINTS = {"destroy": colour.RED, "create": colour.GREEN}


def text(plan: Plan, inventory: Inventory, tinted: bool) -> str:
    """The whole plan, drawn GPU by GPU."""
    gpus = [g for g in inventory.gpus if g.pci in plan.lanes]
    column = max(draw.width([draw.title(g) for g in gpus]), draw.width([s for g in gpus for s in _sides(g, plan)]))
    lines: list[str] = []
    number = 1
    for gpu in gpus:
        lines += [*_gpu(gpu, plan.lanes[gpu.pci], inventory, column, number, tinted), ""]
        number += len(plan.lanes[gpu.pci])
    lines.append(figures(plan))
    return "\n".join(lines)


def _sides(gpu: Gpu, plan: Plan) -> tuple[str, str]:
    actions = plan.lanes[gpu.pci]
    return f"  now      {_now(gpu)}", f"  planned  {_planned(gpu, actions)}"


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
    family = inventory.family(gpu)
    now, planned = f"  now      {_now(gpu)}", f"  planned  {_planned(gpu, actions)}"
    after = draw.planned(gpu, actions) if not planned.endswith("MIG disabled") else ()
    lines = [
        draw.ruler(draw.title(gpu), family, column),
        draw.row(now, draw.now(gpu), family, column, tinted) if gpu.mig.enabled else now,
        draw.row(planned, after, family, column, tinted) if not planned.endswith("MIG disabled") else planned,
    ]
    rows = []
    for offset, action in enumerate(actions):
        verb, letter, what = draw.act(action, gpu, actions)
        rows.append((f"{number + offset:>2}", f"{verb:<7}", letter, what, action.reason))
    return lines + [_tinted(line, tinted) for line in draw.table(rows)]


def _tinted(line: str, on: bool) -> str:
    verb = line.split()[1]
    return line.replace(verb, colour.paint(verb, _TINTS.get(verb, ""), on), 1) if verb in _TINTS else line


def figures(plan: Plan) -> str:
    """``3 kept, 2 to destroy, 1 to create, GPU 0000:41:00.0 to reset``."""
    if not plan.changes:
        return f"nothing to do: {kept(plan)} as asked" if plan.kept else "nothing to do"
    parts = [f"{plan.kept} kept", f"{plan.destroyed} to destroy", f"{plan.created} to create"]
    modes = len({a.gpu for a in plan.actions if isinstance(a, SetMode)})
    parts += [f"MIG mode of {'1 GPU' if modes == 1 else f'{modes} GPUs'} to set"] if modes else []
    inner = sum(isinstance(a, CreateCompute | DestroyCompute) for a in plan.actions)
    parts += [f"{inner} compute instance {'change' if inner == 1 else 'changes'}"] if inner else []
    parts += [f"{_gpus(plan.resets)} to reset"] if plan.resets else []
    parts += [f"{_gpus(plan.reboots)} to wait for a reboot"] if plan.reboots else []
    return ", ".join(parts)


def _gpus(pcis: tuple[str, ...]) -> str:
    return f"GPU {', '.join(pcis)}" if len(pcis) < 3 else f"{len(pcis)} GPUs"


def kept(plan: Plan) -> str:
    return "1 instance is" if plan.kept == 1 else f"{plan.kept} instances are"


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
