"""The driver calls of this process that have not returned: calls of NVML, reads and writes of the kernel's files, and
the driver's programs. A driver in trouble (XID 79, 119, 154) may keep a caller for minutes, or for ever.
"""

from __future__ import annotations

import os
from threading import get_ident
from time import monotonic
from types import TracebackType

from aliquot.errors import DriverHangsError, UsageError

VARIABLE = "ALIQUOT_DRIVER_HANGS_S"
HANGS_S = 30.0
"""A call that takes longer hangs. The slowest call of NVML that is known takes 5 s: MIG mode on Ampere, which resets
the GPU. What may take longer has a bound of its own: a reset by nvidia-smi, and virtual functions, 120 s.
"""
SLOW_WRITE_S = 120.0
"""The bound of a write to the kernel's files: virtual functions of a full machine need a minute."""

_running: dict[int, DriverCall] = {}


class DriverCall:
    """A call from its start to its return, as a context: ``with DriverCall("reading the MIG mode", pci): ...``.
    ``what`` names the call, ``gpu`` is a PCI address or empty; ``bound_s`` is how long it may take where that is longer
    than the usual bound. It costs less than a microsecond: a read of a node makes thousands of calls.
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

    @property
    def seconds(self) -> float:
        """How long the call has been running."""
        return monotonic() - self.since

    @property
    def name(self) -> str:
        """The call, and the GPU that it is about."""
        return f"{self.what} (GPU {self.gpu})" if self.gpu and self.gpu not in self.what else self.what

    @property
    def sentence(self) -> str:
        """What has not returned, on which GPU, and for how long."""
        return f"the driver has not returned from {self.name} for {self.seconds:.0f} s"


def oldest() -> DriverCall | None:
    """Return the call that has been running longest; None while no call is running."""
    return min(tuple(_running.values()), key=lambda call: call.since, default=None)


def oldest_s() -> float:
    """Return for how many seconds the oldest call has been running, 0 while no call is running."""
    call = oldest()
    return call.seconds if call is not None else 0.0


def check(after_s: float, thread: int = 0) -> None:
    """Raise DriverHangsError if a call hangs, as ``find_hang`` finds it."""
    error = find_hang(after_s, thread)
    if error is not None:
        raise error


def find_hang(after_s: float, thread: int = 0) -> DriverHangsError | None:
    """Return an error for the oldest call that has been running for ``after_s``, and for its own bound, or longer; None
    without one. ``thread`` is the identifier of a thread, 0 for all. The sentence stays the same for as long as it is
    the same call.
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


def hangs_s() -> float:
    """Return after how many seconds a call hangs: ``HANGS_S``, or what the environment says. Raises UsageError."""
    text = os.environ.get(VARIABLE) or str(HANGS_S)
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise UsageError(f"{VARIABLE} is {text!r}: it must be a number of seconds", next_step=f"unset {VARIABLE}")
    return seconds


def bound_s(after_s: float) -> float:
    """Return how long the calls that are running may take: ``after_s``, or the longest bound that one of them has."""
    return max((after_s, *(call.bound_s for call in tuple(_running.values()))))
