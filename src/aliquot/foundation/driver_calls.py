"""Driver calls of this process that have not returned: NVML calls, access to the kernel's files, and the driver's
programs. A failed driver (XID 79, 119, 154) may block a caller for minutes or forever.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from threading import get_ident
from time import monotonic
from types import TracebackType

from aliquot.errors import DriverHangsError, UsageError

VARIABLE = "ALIQUOT_DRIVER_HANGS_S"
HANGS_S = 30.0
"""Seconds after which a call counts as hanging. The slowest known NVML call takes 5 s: MIG mode on Ampere, which resets
the GPU. Slower calls have their own bound: a reset by nvidia-smi, and virtual functions, 120 s.
"""
SLOW_WRITE_S = 120.0
"""The bound of a write to the kernel's files: enabling the virtual functions of a full node takes a minute."""

on_return: Callable[[DriverCall], None] | None = None
"""Called in the calling thread with each call that has returned."""

_running: dict[int, DriverCall] = {}


class DriverCall:
    """A driver call from its start to its return: ``with DriverCall("reading the MIG mode", pci): ...``.

    ``what`` names the call and ``gpu`` is a PCI address or empty. ``bound_s`` is the time that the call may take if
    that is longer than the usual bound. Entering and leaving costs less than a microsecond: reading a node makes
    thousands of calls.
    """

    __slots__ = ("bound_s", "gpu", "since", "thread", "what")

    def __init__(self, what: str, gpu: str = "", bound_s: float = 0.0) -> None:
        self.what = what
        self.gpu = gpu
        self.bound_s = bound_s
        self.since = 0.0
        self.thread = 0

    def __enter__(self) -> DriverCall:
        self.since = monotonic()
        self.thread = get_ident()
        _running[id(self)] = self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _running.pop(id(self), None)
        if on_return is not None:
            on_return(self)

    @property
    def seconds(self) -> float:
        """Seconds since the call started."""
        return monotonic() - self.since

    @property
    def name(self) -> str:
        """The call and its GPU."""
        return f"{self.what} (GPU {self.gpu})" if self.gpu and self.gpu not in self.what else self.what

    @property
    def sentence(self) -> str:
        """The sentence that reports the call: what has not returned, on which GPU, and for how long."""
        return f"the driver has not returned from {self.name} for {self.seconds:.0f} s"


def oldest() -> DriverCall | None:
    """Return the call that has been running longest, or None."""
    return min(tuple(_running.values()), key=lambda call: call.since, default=None)


def oldest_s() -> float:
    """Return for how many seconds the oldest call has been running; 0 if no call is running."""
    call = oldest()
    return call.seconds if call is not None else 0.0


def check(after_s: float, thread: int = 0) -> None:
    """Raise DriverHangsError if ``find_hang`` finds a call that hangs."""
    error = find_hang(after_s, thread)
    if error is not None:
        raise error


def find_hang(after_s: float, thread: int = 0) -> DriverHangsError | None:
    """Return an error for the oldest call that has been running for ``after_s`` seconds and for its own bound; None if
    there is none. ``thread`` is a thread identifier, 0 for all threads. The sentence stays the same during one call.
    """
    for call in sorted(_running.values(), key=lambda each: each.since):
        bound_s = max(after_s, call.bound_s)
        if call.seconds < bound_s or thread not in (0, call.thread):
            continue
        return DriverHangsError(
            f"the driver has not returned from {call.name} for more than {bound_s:g} s",
            next_step="look for Xid messages in the kernel log (dmesg | grep -i xid); if it lasts, reboot the node",
        )
    return None


def current_hang() -> DriverHangsError | None:
    """Return an error for a call of this process that hangs, by the bound that the environment sets; None without one.
    Raises UsageError.
    """
    return find_hang(hangs_s())


def hangs_s() -> float:
    """Return the seconds after which a call counts as hanging: ``HANGS_S``, or the value from the environment. Raises
    UsageError.
    """
    text = os.environ.get(VARIABLE) or str(HANGS_S)
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise UsageError(f"{VARIABLE} is {text!r}: it must be a number of seconds", next_step=f"unset {VARIABLE}")
    return seconds


def bound_s(after_s: float) -> float:
    """Return the seconds that the running calls may take: ``after_s``, or the longest bound among them."""
    return max((after_s, *(call.bound_s for call in tuple(_running.values()))))
