"""Lines of progress, and actions in sentences of a rollback."""

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
    SetScheduler,
)
from aliquot.core.model.inventory import Holder
from aliquot.core.model.structured_text import GpuName, Part, StructuredText, TextPart


class ExecutedAction(TextPart, frozen=True):
    """An action that was executed, as the end of a line of progress."""

    action: Action

    def __str__(self) -> str:
        return _words(self.action)[0]


class HolderWait(TextPart, frozen=True):
    """A wait for holders, as the end of a line of progress."""

    holders: tuple[Holder, ...]
    timeout_s: float
    """The longest wait, in seconds."""

    def __str__(self) -> str:
        return f"waiting for {', '.join(map(str, self.holders))}, {self.timeout_s:g} s at most"


def progress_line(gpu: str, words: Part) -> StructuredText:
    """Return a line of progress about a GPU: ``GPU 0000:41:00.0: ending process 4711 (python)``."""
    return StructuredText(GpuName(gpu, ": "), words)


def describe(action: Action) -> StructuredText:
    """Return a line of progress for an action that was executed."""
    return progress_line(action.gpu, ExecutedAction(action))


def undone(action: Action) -> str:
    """Return a line for an action that a rollback executed."""
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
    SetScheduler: ("scheduler set to {0.scheduler}", "the scheduler is {0.scheduler} again"),
    SetMixedSize: ("mixed-size mode {1}", "mixed-size mode is {1} again"),
    CreateVgpu: (
        "created vGPU {0.type} on {0.function} ({0.uuid})",
        "vGPU {0.type} on {0.function} is back ({0.uuid})",
    ),
    DestroyVgpu: ("destroyed vGPU {0.type} on {0.function}", "the new vGPU {0.type} on {0.function} is gone again"),
}
"""The texts of an action, when applied and in a rollback; {1} is the new state of what it switches."""


def _words(action: Action) -> tuple[str, str]:
    if isinstance(action, SetPassthrough):
        what = f"virtual function {action.function}" if action.function else "the whole GPU"
        if action.on:
            return f"{what} bound to vfio-pci", f"{what} bound to vfio-pci again"
        return f"{what} returned to its driver", f"{what} with its driver again"
    state = functions(action.count) if isinstance(action, SetFunctions) else ""
    if isinstance(action, SetMixedSize):
        state = "on" if action.on else "off"
    done, back = _WORDS[type(action)]
    return done.format(action, state), back.format(action, state)


def functions(count: int) -> str:
    """Return ``on (16)`` or ``off``."""
    return f"on ({count})" if count else "off"
