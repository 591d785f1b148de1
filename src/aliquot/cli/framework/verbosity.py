"""The options ``-q``, ``-v`` and ``--color``: what a command prints besides its result."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from aliquot.cli.framework import color, streams
from aliquot.cli.framework.parser import Args
from aliquot.errors import UsageError

if TYPE_CHECKING:
    from aliquot.core.engine.step_timing import TimedStep
    from aliquot.foundation.driver_calls import DriverCall

SLOW_S = 0.1
"""Driver calls that take at least this many seconds are logged one by one."""


@contextmanager
def applied(args: Args) -> Iterator[None]:
    """Apply the options while a verb runs. Raises UsageError for ``-q`` with ``-v``."""
    quiet, verbose = getattr(args, "quiet", False), getattr(args, "verbose", False)
    if quiet and verbose:
        raise UsageError("-q and -v exclude each other", next_step=f"{args.prog} --help")
    color.mode = getattr(args, "color", color.AUTO)
    streams.quiet = quiet
    try:
        if verbose:
            with _driver_call_log():
                yield
        else:
            yield
    finally:
        color.mode, streams.quiet = color.AUTO, False


@contextmanager
def _driver_call_log() -> Iterator[None]:
    """Log slow driver calls as they return, and the number and time of all of them in the end."""
    from aliquot.foundation import driver_calls

    seconds: list[float] = []

    def log(call: DriverCall) -> None:
        seconds.append(call.seconds)
        if call.seconds >= SLOW_S:
            streams.note(f"driver   {call.name}: {call.seconds:.3f} s")

    driver_calls.on_return = log
    try:
        yield
    finally:
        driver_calls.on_return = None
        streams.note(f"driver   {len(seconds)} calls in {sum(seconds):.3f} s")


def log_step(step: TimedStep) -> None:
    """Log a step of a change that has ended."""
    words = filter(None, (step.name, step.profile, step.code and f"failed with {step.code}"))
    streams.note(f"step     {' '.join(words)}: {step.seconds:.3f} s")
