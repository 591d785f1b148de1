"""Actions in sentences: as progress, and as what was undone."""

from __future__ import annotations

from typing import assert_never

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


def describe(action: Action) -> str:
    """One action, done, as a line of progress."""
    return f"GPU {action.gpu}: {_done(action)}"


def creation_step(action: Create | CreateCompute | CreateVgpu) -> str:
    """Return how the journal names the call that creates something."""
    match action:
        case Create():
            return f"create gi {action.profile} {action.placement}"
        case CreateCompute():
            return f"create ci {action.instance}/{action.profile_id} {action.placement or ''}".rstrip()
        case CreateVgpu():
            return f"create vgpu {action.type} {action.function} {action.uuid}"


def _done(action: Action) -> str:
    match action:
        case Destroy():
            return f"destroyed {action.profile} at {action.placement} (instance {action.instance})"
        case Create():
            return f"created {action.profile} at {action.placement}"
        case DestroyCompute():
            return f"destroyed compute instance {action.profile} in instance {action.instance}"
        case CreateCompute():
            return f"created compute instance {action.profile} in instance {action.instance}"
        case SetMode():
            return f"MIG mode set to {action.mode}"
        case Reset():
            return "reset"
        case SetFunctions():
            return f"virtual functions {functions(action.count)}"
        case SetMixedSize():
            return f"mixed-size mode {'on' if action.on else 'off'}"
        case CreateVgpu():
            return f"created vGPU {action.type} on {action.function} ({action.uuid})"
        case DestroyVgpu():
            return f"destroyed vGPU {action.type} on {action.function}"
        case SetPassthrough():
            return _passthrough(action, "given back to its driver")
        case _:
            assert_never(action)


def undone(action: Action) -> str:
    """One action of the way back."""
    match action:
        case Create():
            what = f"{action.profile} at {action.placement} is back"
        case Destroy():
            what = f"the new {action.profile} at {action.placement} is gone again"
        case CreateCompute():
            what = f"compute instance {action.profile} in instance {action.instance} is back"
        case DestroyCompute():
            what = f"the new compute instance {action.profile} in instance {action.instance} is gone again"
        case Reset():
            what = "reset"
        case SetMode():
            what = f"MIG mode is {action.mode} again"
        case SetFunctions():
            what = f"virtual functions are {functions(action.count)} again"
        case SetMixedSize():
            what = f"mixed-size mode is {'on' if action.on else 'off'} again"
        case CreateVgpu():
            what = f"vGPU {action.type} on {action.function} is back ({action.uuid})"
        case DestroyVgpu():
            what = f"the new vGPU {action.type} on {action.function} is gone again"
        case SetPassthrough():
            what = f"{_passthrough(action, 'with its driver')} again"
        case _:
            assert_never(action)
    return f"GPU {action.gpu}: {what}"


def functions(count: int) -> str:
    """``on (16)`` or ``off``."""
    return f"on ({count})" if count else "off"


def _passthrough(action: SetPassthrough, back: str) -> str:
    what = f"virtual function {action.function}" if action.function else "the whole GPU"
    return f"{what} {'handed to vfio-pci' if action.on else back}"
