"""The summary of a plan in one line, before and after it is applied."""

from __future__ import annotations

from aliquot.core.model.actions import (
    CreateCompute,
    DestroyCompute,
    SetFunctions,
    SetMixedSize,
    SetMode,
    SetPassthrough,
    SetScheduler,
)
from aliquot.core.model.plan import Plan

_SETTINGS = (
    (SetFunctions, "virtual functions"),
    (SetMixedSize, "mixed-size mode"),
    (SetScheduler, "scheduler"),
    (SetPassthrough, "passthrough"),
)


def plan_text(plan: Plan) -> str:
    """Return what a plan will do: ``keep 3, destroy 2, create 1, reset GPU 0000:41:00.0``."""
    if not plan.changes:
        return f"nothing to do: {unchanged_text(plan)} as requested" if plan.unchanged else "nothing to do"
    parts = [f"keep {plan.unchanged}, destroy {plan.destroyed}, create {plan.created}"]
    parts = [*([] if _only_settings(plan) else parts), *_settings(plan)]
    inner = sum(isinstance(a, CreateCompute | DestroyCompute) for a in plan.actions)
    parts += [f"make {inner} compute instance {'change' if inner == 1 else 'changes'}"] if inner else []
    parts += [f"reset {_gpus(plan.resets)}"] if plan.resets else []
    parts += [f"wait for a reboot for {_gpus(plan.reboots)}"] if plan.reboots else []
    return ", ".join(parts)


def _settings(plan: Plan) -> list[str]:
    """Return what is set: ``set virtual functions of GPU 0000:41:00.0``, ``set MIG mode of 2 GPUs``."""
    parts = []
    for kind, what in _SETTINGS:
        gpus = tuple(dict.fromkeys(a.gpu for a in plan.actions if isinstance(a, kind)))
        parts += [f"set {what} of {_gpus(gpus)}"] if gpus else []
    modes = len({a.gpu for a in plan.actions if isinstance(a, SetMode)})
    return parts + ([f"set MIG mode of {'1 GPU' if modes == 1 else f'{modes} GPUs'}"] if modes else [])


def applied_text(plan: Plan) -> str:
    """Return what a plan did: ``kept 3, destroyed 2, created 1``, and what was set and reset."""
    counts = f"kept {plan.unchanged}, destroyed {plan.destroyed}, created {plan.created}"
    parts = [*([] if _only_settings(plan) else [counts]), *_settings(plan)]
    return ", ".join([*parts, *([f"reset {_gpus(plan.resets)}"] if plan.resets else [])])


def _only_settings(plan: Plan) -> bool:
    """Report whether a plan neither creates nor destroys."""
    counted = plan.unchanged or plan.destroyed or plan.created
    return not counted and any(isinstance(a, kind) for a in plan.actions for kind, _ in _SETTINGS)


def _gpus(pcis: tuple[str, ...]) -> str:
    return f"GPU {', '.join(pcis)}" if len(pcis) < 3 else f"{len(pcis)} GPUs"


def unchanged_text(plan: Plan) -> str:
    """Return ``3 instances are``, ``1 vGPU is`` or, if the desired state has neither, what it sets: ``the virtual
    functions are``, ``passthrough is``.
    """
    gpus = plan.desired.gpus
    what = {"instance": any(w.instances for w in gpus), "vGPU": any(w.vgpus for w in gpus)}
    if not any(what.values()) and any(w.functions is not None or w.vfio_bound is not None for w in gpus):
        return "the virtual functions are"
    if not any(what.values()) and any(w.passthrough is not None for w in gpus):
        return "passthrough is"
    named = [name for name, requested in what.items() if requested] or ["instance"]
    return (
        f"1 {named[-1]} is" if plan.unchanged == 1 else f"{plan.unchanged} {' and '.join(f'{n}s' for n in named)} are"
    )
