"""Messages of the agent about plans and geometries."""

from __future__ import annotations

from collections import Counter

from aliquot.core.model.actions import (
    Create,
    CreateCompute,
    CreateVgpu,
    Destroy,
    DestroyCompute,
    DestroyVgpu,
    Reset,
    SetFunctions,
    SetMixedSize,
    SetMode,
    SetScheduler,
)
from aliquot.core.model.geometry import geometry as multiset
from aliquot.core.model.geometry import geometry_text
from aliquot.core.model.inventory import Gpu, Inventory
from aliquot.core.model.plan import Plan
from aliquot.core.rendering.vgpu_picture import short as short_type
from aliquot.kubernetes.gpu.config_label import DesiredConfig

_Setting = SetMode | SetFunctions | SetMixedSize | SetScheduler


def geometry(inventory: Inventory | None, config: DesiredConfig | None) -> str:
    """Describe the geometry of the requested GPUs: ``GPU 0-6: 1g.5gb:7; GPU 7: MIG disabled``."""
    if inventory is None or config is None or config.desired is None:
        return "no GPU is affected"
    vgpus_of = {w.pci: w.vgpus is not None for w in config.desired.gpus}
    groups: dict[str, list[int]] = {}
    for gpu in inventory.gpus:
        if gpu.pci in vgpus_of:
            text = _vgpu_geometry(gpu) if vgpus_of[gpu.pci] else _gpu_geometry(gpu)
            groups.setdefault(text, []).append(gpu.index)
    return "; ".join(f"GPU {_ranges(indexes)}: {text}" for text, indexes in groups.items()) or "no GPU is affected"


def _gpu_geometry(gpu: Gpu) -> str:
    if not gpu.mig.enabled:
        return "MIG disabled"
    return geometry_text(multiset(i.profile for i in gpu.instances)) or "MIG enabled, empty"


def _vgpu_geometry(gpu: Gpu) -> str:
    return geometry_text(multiset(short_type(v.type) for v in gpu.vgpus)) if gpu.vgpus else "no vGPU"


def _ranges(numbers: list[int]) -> str:
    out: list[list[int]] = []
    for n in sorted(numbers):
        if out and n == out[-1][1] + 1:
            out[-1][1] = n
        else:
            out.append([n, n])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in out)


def intent(plan: Plan) -> str:
    """Describe the actions of a plan: ``to destroy 1x 3g.20gb, to create 7x 1g.5gb, 2 instances kept``."""
    return _action_text(plan, "to create", "to destroy", "to set", "to reset")


def result(plan: Plan) -> str:
    """Describe the actions of a plan after it was applied."""
    return _action_text(plan, "created", "destroyed", "set", "reset")


def _action_text(plan: Plan, create: str, destroy: str, change: str, reset: str) -> str:
    made = Counter(_device_name(a) for a in plan.actions if isinstance(a, Create | CreateCompute | CreateVgpu))
    gone = Counter(_device_name(a) for a in plan.actions if isinstance(a, Destroy | DestroyCompute | DestroyVgpu))
    modes = Counter(_mode_text(a) for a in plan.actions if isinstance(a, _Setting))
    resets = sum(isinstance(a, Reset) for a in plan.actions)
    parts = [f"{change} {m} on {n} GPU{'s' * (n > 1)}" for m, n in modes.items()]
    parts += [f"{reset} {resets} GPU{'s' * (resets > 1)}"] if resets else []
    for verb, counts in ((destroy, gone), (create, made)):
        if counts:
            parts.append(f"{verb} " + ", ".join(f"{n}x {name}" for name, n in counts.items()))
    if plan.unchanged:
        parts.append(f"{_kept_text(plan)} kept")
    return ", ".join(parts)


def _kept_text(plan: Plan) -> str:
    """Return ``2 instances and 1 vGPU``: a GPU instance may stay where its vGPU goes."""
    requested = sum(len(gpu.vgpus or ()) for gpu in plan.desired.gpus)
    vgpus = min(requested - sum(isinstance(a, CreateVgpu) for a in plan.actions), plan.unchanged)
    counts = (("instance", plan.unchanged - vgpus), ("vGPU", vgpus))
    return " and ".join(f"{count} {what}{'s' * (count > 1)}" for what, count in counts if count)


def _device_name(action: Create | CreateCompute | CreateVgpu | Destroy | DestroyCompute | DestroyVgpu) -> str:
    return short_type(action.type) if isinstance(action, CreateVgpu | DestroyVgpu) else action.profile


def _mode_text(action: _Setting) -> str:
    if isinstance(action, SetScheduler):
        return f"scheduler {action.scheduler}"
    if isinstance(action, SetMode):
        return f"MIG mode {action.mode}"
    if isinstance(action, SetFunctions):
        return f"virtual functions {'enabled' if action.count else 'disabled'}"
    return f"mixed-size mode {'enabled' if action.on else 'disabled'}"


def holders(plan: Plan) -> str:
    """List the holders of instances that a plan would destroy."""
    found = dict.fromkeys(str(h) for b in plan.blockers if b.rule == "HELD" for h in b.holders)
    return ", ".join(found) or "a client that the driver does not name"


def describe_command(plan: Plan) -> str:
    """Return the command that shows the first pod that blocks the plan."""
    for blocker in plan.blockers:
        for each in blocker.holders:
            if each.kind == "pod":
                namespace, _, name = each.id.partition("/")
                return f"kubectl -n {namespace} describe pod {name}"
    return "aliquot show"
