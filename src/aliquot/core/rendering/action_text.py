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
from aliquot.core.rendering import mig_picture
from aliquot.core.rendering import vgpu_picture as shares


def describe_action(action: Action, gpu: Gpu, actions: Sequence[Action]) -> tuple[str, str, str]:
    """An action as verb, letter and object."""
    match action:
        case Destroy():
            letter = mig_picture.letter_at(mig_picture.current_instances(gpu), action.placement)
            return "destroy", letter, f"{action.profile} at {action.placement}"
        case Create():
            letter = mig_picture.letter_at(mig_picture.planned_instances(gpu, actions), action.placement)
            inside = [part.profile for part in action.compute]
            more = "" if inside == [action.profile] else f" with {' + '.join(inside) or 'no compute instance'}"
            return "create", letter, f"{action.profile} at {action.placement}{more}"
        case DestroyCompute():
            return "destroy", mig_picture.instance_letter(gpu, action.instance), f"{action.profile} (compute instance)"
        case CreateCompute():
            return "create", mig_picture.instance_letter(gpu, action.instance), f"{action.profile} (compute instance)"
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
                mig_picture.letter_at(mig_picture.planned_instances(gpu, actions), action.instance)
                if action.instance is not None
                else ""
            )
            letter = letter or _vgpu_letter(shares.planned_vgpus(gpu, actions, None), action)
            return "create", letter, f"{_vgpu(action)}{_where(action)}"
        case DestroyVgpu():
            named = (action.function, action.uuid)
            owner = next((v.gpu_instance for v in gpu.vgpus if v.key == named), None)
            return (
                "destroy",
                mig_picture.instance_letter(gpu, owner) or _vgpu_letter(shares.current_vgpus(gpu, None), action),
                _vgpu(action),
            )
        case SetPassthrough():
            what = f"passthrough of {action.function}" if action.function else "passthrough"
            return "set", "", f"{what} {'on' if action.on else 'off'}"


def _vgpu(action: CreateVgpu | DestroyVgpu) -> str:
    return f"{shares.short(action.type)} on {action.function}"


def _where(action: CreateVgpu) -> str:
    if action.instance is not None:
        return f", instance at {action.instance}"
    return f" at {action.placement} GiB" if action.placement is not None else ""


def _vgpu_letter(found: Sequence[shares.DrawnVgpu], action: CreateVgpu | DestroyVgpu) -> str:
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
