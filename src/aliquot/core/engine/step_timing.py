"""Steps of an apply with their durations, for metrics. No decision depends on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from aliquot.core.model.actions import Action, Create, CreateCompute, CreateVgpu, Destroy, DestroyCompute, DestroyVgpu
from aliquot.errors import AliquotError

if TYPE_CHECKING:
    from aliquot.core.engine.ports import Clock

PLAN, LOCK, READ, HOOKS, VERIFY, RECORD, UNDO = "plan", "lock", "read", "hooks", "verify", "record", "undo"


class TimedStep(msgspec.Struct, frozen=True):
    """A step that has ended."""

    name: str
    """One of the words above, or the tag of an action (``create``, ``reset`` ...)."""
    seconds: float
    profile: str = ""
    """The MIG profile or the vGPU type of an action."""
    code: str = ""
    """The code of the error that ended it."""
    is_action: bool = False


StepListener = Callable[[TimedStep], None]
"""Receives each step when it ends, on any thread. It must not raise."""


def ignore_step(step: TimedStep) -> None:
    """Ignore a step."""


@contextmanager
def timed(on_step: StepListener, clock: Clock, name: str, action: Action | None = None) -> Iterator[None]:
    """Report the step of the block, even if it fails."""
    started, code = clock.now(), ""
    try:
        yield
    except AliquotError as error:
        code = error.code
        raise
    finally:
        on_step(TimedStep(name, clock.now() - started, profile_of(action), code, action is not None))


def name_of(action: Action) -> str:
    """Return the name of an action: ``create``, ``set-mode`` ..."""
    return str(action.__struct_config__.tag)


def profile_of(action: Action | None) -> str:
    """Return the MIG profile or vGPU type of an action, "" for modes, resets and the like."""
    match action:
        case Create() | Destroy() | CreateCompute() | DestroyCompute():
            return action.profile
        case CreateVgpu() | DestroyVgpu():
            return action.type
        case _:
            return ""
