"""Actions in sentences: as progress, and as what was undone."""

from __future__ import annotations

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
    return f"GPU {action.gpu}: {_words(action)[0]}"


def creation_step(action: Create | CreateCompute | CreateVgpu) -> str:
    """Return how the journal names the call that creates something."""
    match action:
        case Create():
            return f"create gi {action.profile} {action.placement}"
        case CreateCompute():
            return f"create ci {action.instance}/{action.profile_id} {action.placement or ''}".rstrip()
        case CreateVgpu():
            return f"create vgpu {action.type} {action.function} {action.uuid}"


def undone(action: Action) -> str:
    """One action of the way back."""
    return f"GPU {action.gpu}: {_words(action)[1]}"


_WORDS: dict[type[Action], tuple[str, str]] = {
    Destroy: (
        "destroyed {0.profile} at {0.placement} (instance {0.instance})",
        "the new {0.profile} at {0.placement} is gone again",
    ),
    Create: ("created {0.profile} at {0.placement}", "{0.profile} at {0.placement} is back"),
    DestroyCompute: (
        "destroyed compute instance {0.profile} in instance {0.instance}",
        "the new compute instance {0.profile} in instance {0.instance} is gone again",
    ),
    CreateCompute: (
        "created compute instance {0.profile} in instance {0.instance}",
        "compute instance {0.profile} in instance {0.instance} is back",
    ),
    SetMode: ("MIG mode set to {0.mode}", "MIG mode is {0.mode} again"),
    Reset: ("reset", "reset"),
    SetFunctions: ("virtual functions {1}", "virtual functions are {1} again"),
    SetMixedSize: ("mixed-size mode {1}", "mixed-size mode is {1} again"),
    CreateVgpu: (
        "created vGPU {0.type} on {0.function} ({0.uuid})",
        "vGPU {0.type} on {0.function} is back ({0.uuid})",
    ),
    DestroyVgpu: ("destroyed vGPU {0.type} on {0.function}", "the new vGPU {0.type} on {0.function} is gone again"),
}
"""Each action that was done, and on the way back; {1} is what it switches to."""


def _words(action: Action) -> tuple[str, str]:
    if isinstance(action, SetPassthrough):
        what = f"virtual function {action.function}" if action.function else "the whole GPU"
        if action.on:
            return f"{what} handed to vfio-pci", f"{what} handed to vfio-pci again"
        return f"{what} given back to its driver", f"{what} with its driver again"
    state = functions(action.count) if isinstance(action, SetFunctions) else ""
    if isinstance(action, SetMixedSize):
        state = "on" if action.on else "off"
    done, back = _WORDS[type(action)]
    return done.format(action, state), back.format(action, state)


def functions(count: int) -> str:
    """``on (16)`` or ``off``."""
    return f"on ({count})" if count else "off"
