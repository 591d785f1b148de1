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
    SetScheduler,
)
from aliquot.core.model.inventory import Gpu, GpuInstance, Holder
from aliquot.core.rendering import mig_picture
from aliquot.core.rendering import vgpu_picture as shares


def describe_action(action: Action, gpu: Gpu, actions: Sequence[Action]) -> tuple[str, str, str]:
    """Describe an action as verb, letter and object."""
    verb = str(action.__struct_config__.tag).partition("-")[0]
    return verb, _letter(action, gpu, actions), _object(action)


def _letter(action: Action, gpu: Gpu, actions: Sequence[Action]) -> str:
    match action:
        case Destroy():
            return mig_picture.letter_at(mig_picture.current_instances(gpu), action.placement)
        case Create():
            return mig_picture.letter_at(mig_picture.planned_instances(gpu, actions), action.placement)
        case DestroyCompute() | CreateCompute():
            return mig_picture.instance_letter(gpu, action.instance)
        case CreateVgpu():
            planned = mig_picture.planned_instances(gpu, actions)
            letter = mig_picture.letter_at(planned, action.instance) if action.instance is not None else ""
            return letter or _vgpu_letter(shares.planned_vgpus(gpu, actions, None), action)
        case DestroyVgpu():
            owner = next((v.gpu_instance for v in gpu.vgpus if v.key == (action.function, action.uuid)), None)
            return mig_picture.instance_letter(gpu, owner) or _vgpu_letter(shares.current_vgpus(gpu, None), action)
        case _:
            return ""


def _object(action: Action) -> str:
    match action:
        case Destroy() | Create():
            return f"{action.profile} at {action.placement}{inside(action)}"
        case DestroyCompute() | CreateCompute():
            return f"{action.profile} (compute instance)"
        case SetMode():
            return f"MIG mode {action.mode}"
        case Reset():
            return "the GPU"
        case SetFunctions():
            count = "1 virtual function" if action.count == 1 else f"{action.count} virtual functions"
            return f"{count} on" if action.count else "virtual functions off"
        case SetMixedSize():
            return f"mixed-size mode {'on' if action.on else 'off'}"
        case SetScheduler():
            return f"scheduler {action.scheduler}"
        case CreateVgpu() | DestroyVgpu():
            parameters = action.parameters if isinstance(action, CreateVgpu) else ""
            what = f"{shares.short(action.type)} on {action.function}{_where(action)}"
            return f"{what} with {parameters}" if parameters else what
        case SetPassthrough():
            what = f"passthrough of {action.function}" if action.function else "passthrough"
            return f"{what} {'on' if action.on else 'off'}"


def inside(action: Create | Destroy) -> str:
    """Return the content of a new GPU instance, "" if it is one compute instance of full size."""
    if isinstance(action, Destroy) or [part.profile for part in action.compute] == [action.profile]:
        return ""
    return f" with {' + '.join(part.profile for part in action.compute) or 'no compute instance'}"


def _where(action: CreateVgpu | DestroyVgpu) -> str:
    if isinstance(action, DestroyVgpu):
        return ""
    if action.instance is not None:
        return f", instance at {action.instance}"
    return f" at {action.placement} GiB" if action.placement is not None else ""


def _vgpu_letter(found: Sequence[shares.DrawnVgpu], action: CreateVgpu | DestroyVgpu) -> str:
    return next((s.letter for s in found if s.key == (action.function, action.uuid)), "")


def holders(found: Sequence[Holder]) -> str:
    return ", ".join(map(str, found))


def state(instance: GpuInstance) -> str:
    """Return ``held by process 4711 (python)`` or ``idle``."""
    found = [
        *instance.holders,
        *(h for c in instance.compute_instances for h in c.holders if h not in instance.holders),
    ]
    if len(found) > 2 and all(h.kind == "vgpu" for h in found):
        return f"held by {len(found)} vGPUs"
    if found:
        return f"held by {holders(found)}"
    return "held" if instance.held else "idle"
