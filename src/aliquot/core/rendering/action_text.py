"""Actions, holders and instances in a few words."""

from __future__ import annotations

from collections.abc import Sequence

from aliquot.core.model.actions import (
    Action,
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
    SetPassthrough,
)
from aliquot.core.model.inventory import Gpu, GpuInstance, Holder
from aliquot.core.rendering import mig_picture as pieces
from aliquot.core.rendering import vgpu_picture as shares


def act(action: Action, gpu: Gpu, actions: Sequence[Action]) -> tuple[str, str, str]:
    """An action as verb, letter and object."""
    match action:
        case Destroy():
            letter = pieces.letter_at(pieces.now(gpu), action.placement)
            return "destroy", letter, f"{action.profile} at {action.placement}"
        case Create():
            letter = pieces.letter_at(pieces.planned(gpu, actions), action.placement)
            inside = [part.profile for part in action.compute]
            more = "" if inside == [action.profile] else f" with {' + '.join(inside) or 'no compute instance'}"
            return "create", letter, f"{action.profile} at {action.placement}{more}"
        case DestroyCompute():
            return "destroy", pieces.instance_letter(gpu, action.instance), f"{action.profile} (compute instance)"
        case CreateCompute():
            return "create", pieces.instance_letter(gpu, action.instance), f"{action.profile} (compute instance)"
        case SetMode():
            return "set", "", f"MIG mode {action.mode}"
        case Reset():
            return "reset", "", "the GPU"
        case SetFunctions():
            count = "1 virtual function" if action.count == 1 else f"{action.count} virtual functions"
            return "set", "", f"{count} on" if action.count else "virtual functions off"
        case SetMixedSize():
            return "set", "", f"mixed-size mode {'on' if action.on else 'off'}"
        case CreateVgpu():
            letter = (
                pieces.letter_at(pieces.planned(gpu, actions), action.instance) if action.instance is not None else ""
            )
            letter = letter or _share(shares.planned(gpu, actions, None), action)
            return "create", letter, f"{_vgpu(action)}{_where(action)}"
        case DestroyVgpu():
            named = (action.function, action.uuid)
            owner = next((v.gpu_instance for v in gpu.vgpus if (v.function, v.uuid) == named), None)
            return "destroy", pieces.instance_letter(gpu, owner) or _share(shares.now(gpu, None), action), _vgpu(action)
        case SetPassthrough():
            what = f"passthrough of {action.function}" if action.function else "passthrough"
            return "set", "", f"{what} {'on' if action.on else 'off'}"


def _vgpu(action: CreateVgpu | DestroyVgpu) -> str:
    return f"{shares.short(action.type)} on {action.function}"


def _where(action: CreateVgpu) -> str:
    if action.instance is not None:
        return f", instance at {action.instance}"
    return f" at {action.placement} GiB" if action.placement is not None else ""


def _share(found: Sequence[shares.Share], action: CreateVgpu | DestroyVgpu) -> str:
    return next((s.letter for s in found if s.key == (action.function, action.uuid)), "")


def holders(found: Sequence[Holder]) -> str:
    return ", ".join(map(str, found))


def state(instance: GpuInstance) -> str:
    """``held by process 4711 (python)`` or ``idle``."""
    found = [
        *instance.holders,
        *(h for c in instance.compute_instances for h in c.holders if h not in instance.holders),
    ]
    if len(found) > 2 and all(h.kind == "vgpu" for h in found):
        return f"held by {len(found)} vGPUs"
    if found:
        return f"held by {holders(found)}"
    return "held" if instance.held else "idle"
