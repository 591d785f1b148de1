"""The driver calls of this process that have not returned: calls of NVML, reads and writes of the kernel's files, and
the driver's programs. A driver in trouble (XID 79, 119, 154) may keep a caller for minutes, or for ever.
"""

from __future__ import annotations

import os
from time import monotonic
from types import TracebackType

from aliquot.errors import UsageError

VARIABLE = "ALIQUOT_DRIVER_HANGS_S"
HANGS_S = 30.0
"""A call that takes longer is reported. The slowest calls known: 5 s for MIG mode on Ampere, which resets the GPU; a
reset by nvidia-smi may take longer, and has a bound of its own (120 s).
"""

_running: dict[int, Running] = {}


class Running:
    """A call from its start to its return, as a context: ``with Running("reading the MIG mode", pci): ...``. ``what``
    names the call, ``gpu`` is a PCI address or empty. It costs less than a microsecond: a read of a node makes
    thousands of calls.
    """

    __slots__ = ("gpu", "since", "what")

    def __init__(self, what: str, gpu: str = "") -> None:
        self.what = what
        self.gpu = gpu
        self.since = 0.0

    def __enter__(self) -> Running:
        self.since = monotonic()
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
    def sentence(self) -> str:
        """What has not returned, on which GPU, and for how long."""
        where = f" (GPU {self.gpu})" if self.gpu and self.gpu not in self.what else ""
        return f"the driver has not returned from {self.what}{where} for {self.seconds:.0f} s"


def oldest() -> Running | None:
    """Return the call that has been running longest; None while no call is running."""
    return min(tuple(_running.values()), key=lambda call: call.since, default=None)


def oldest_s() -> float:
    """Return for how many seconds the oldest call has been running, 0 while no call is running."""
    call = oldest()
    return call.seconds if call is not None else 0.0


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
