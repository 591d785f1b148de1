"""Steps of an apply, told with how long they took: for figures. Nothing is decided by it."""

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
    """A step that has ended: one of the words above, or the tag of an action (``create``, ``reset`` ...;
    ``is_action``). ``profile`` is the MIG profile or the vGPU type that an act was about, ``code`` that of the error
    that ended it.
    """

    name: str
    seconds: float
    profile: str = ""
    code: str = ""
    is_action: bool = False


StepListener = Callable[[TimedStep], None]
"""Is told each step as it ends, from any thread. It must not raise."""


def ignore_step(step: TimedStep) -> None:
    """Nobody counts."""


@contextmanager
def timed(on_step: StepListener, clock: Clock, name: str, action: Action | None = None) -> Iterator[None]:
    """Tells of what is done inside, also where it fails."""
    started, code = clock.now(), ""
    try:
        yield
    except AliquotError as error:
        code = error.code
        raise
    finally:
        on_step(TimedStep(name, clock.now() - started, profile_of(action), code, action is not None))


def name_of(action: Action) -> str:
    """``create``, ``set-mode`` ..."""
    return str(action.__struct_config__.tag)


def profile_of(action: Action | None) -> str:
    """What an act is about, "" for modes, resets and the like."""
    match action:
        case Create() | Destroy() | CreateCompute() | DestroyCompute():
            return action.profile
        case CreateVgpu() | DestroyVgpu():
            return action.type
        case _:
            return ""
