"""A plan in one line: what it will do, and what it did."""

from __future__ import annotations

from aliquot.core.model.actions import (
    CreateCompute,
    DestroyCompute,
    SetFunctions,
    SetMixedSize,
    SetMode,
    SetPassthrough,
)
from aliquot.core.model.plan import Plan

_SETTINGS = (
    (SetFunctions, "virtual functions"),
    (SetMixedSize, "mixed-size mode"),
    (SetPassthrough, "passthrough"),
)


def plan_text(plan: Plan) -> str:
    """``3 kept, 2 to destroy, 1 to create, GPU 0000:41:00.0 to reset``."""
    if not plan.changes:
        return f"nothing to do: {unchanged_text(plan)} as asked" if plan.unchanged else "nothing to do"
    parts = [f"{plan.unchanged} kept", f"{plan.destroyed} to destroy", f"{plan.created} to create"]
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


def applied_text(plan: Plan) -> str:
    """A plan in the past tense: ``kept 3, destroyed 2, created 1``, and what was set and reset."""
    counts = f"kept {plan.unchanged}, destroyed {plan.destroyed}, created {plan.created}"
    parts = [*([] if _only_settings(plan) else [counts]), *_settings(plan, "set"), *_modes(plan, "set")]
    return ", ".join([*parts, *([f"{_gpus(plan.resets)} reset"] if plan.resets else [])])


def _only_settings(plan: Plan) -> bool:
    """Whether nothing is made or destroyed."""
    counted = plan.unchanged or plan.destroyed or plan.created
    return not counted and any(isinstance(a, kind) for a in plan.actions for kind, _ in _SETTINGS)


def _gpus(pcis: tuple[str, ...]) -> str:
    return f"GPU {', '.join(pcis)}" if len(pcis) < 3 else f"{len(pcis)} GPUs"


def unchanged_text(plan: Plan) -> str:
    """``3 instances are``, ``1 vGPU is``, and where the wish speaks of neither, ``the virtual functions are``."""
    gpus = plan.desired.gpus
    what = {"instance": any(w.instances for w in gpus), "vGPU": any(w.vgpus for w in gpus)}
    if not any(what.values()) and any(w.functions is not None or w.vfio_bound is not None for w in gpus):
        return "the virtual functions are"
    named = [name for name, requested in what.items() if requested] or ["instance"]
    return (
        f"1 {named[-1]} is" if plan.unchanged == 1 else f"{plan.unchanged} {' and '.join(f'{n}s' for n in named)} are"
    )
