"""Seeded failures. Each is a record that the node remembers until it is used up.

================  ============================================================================================
busy              IN_USE for the next ``calls`` write calls, or ``until`` a time, on a GPU or one instance
reset-pending     a mode change stays pending (activation IN_USE) for ``calls`` calls, else until a reset
lost              the GPU is lost now, or ``after`` so many write calls on it from now on
half-create       ``what`` gpu: the GPU instance is made but the call answers UNKNOWN; compute: it fails, UNKNOWN
fail              ``call`` answers ``code`` (an errno for writes to the kernel's files) the next ``calls`` times, from
                  the ``nth`` on, and does nothing; only for files whose ``path`` has that text in it
kill              SIGKILL the caller ``before`` or ``after`` the ``nth`` write call on the node from now on
unbind-lock       the unbindLock of a GPU is not to be had the next ``calls`` times
vf-delay          virtual functions appear one by one within so many ``seconds`` (``delay``)
unprivileged      every caller lacks the rights until faults are cleared
hang              ``call`` (every call, if none is given) does not return until the fault is cleared or the caller ends
slow              ``call`` (every call, if none is given) takes ``seconds`` longer (``delay``), the next
                  ``calls`` times
no-effect         ``call`` (every write call, if none is given) answers success and changes nothing
version-mismatch  opening NVML answers LIB_RM_VERSION_MISMATCH; sessions that are open go on
replace-driver    another driver (``version``) is loaded now, or ``after`` so many write calls on the node from now on:
                  sessions and handles are invalid, processes, virtual functions and instances are gone
xid               not a failure but an event, now: XID ``code`` on a GPU, or attributed to ``instance`` (``7``,
                  ``7/0``)
================  ============================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping

from aliquot.sim import codes
from aliquot.sim.state import WHOLE, InjectedFault

KEYS = {
    "busy": ("gpu", "instance", "calls", "seconds"),
    "reset-pending": ("gpu", "calls"),
    "lost": ("gpu", "after"),
    "half-create": ("gpu", "what", "calls"),
    "fail": ("call", "code", "gpu", "path", "nth", "calls"),
    "kill": ("when", "nth"),
    "unprivileged": (),
    "xid": ("gpu", "instance", "code"),
    "unbind-lock": ("gpu", "calls"),
    "vf-delay": ("gpu", "seconds"),
    "hang": ("call", "gpu"),
    "slow": ("call", "gpu", "seconds", "calls"),
    "no-effect": ("call", "gpu", "path", "calls"),
    "version-mismatch": (),
    "replace-driver": ("version", "after"),
}
"""What can be said of each kind. Anything else would be accepted and have no effect."""
COUNTS = ("calls", "nth", "after")
LONGEST_S = 1_000_000

EVERY = -2
"""The GPU of a call that reads every GPU: it meets the faults of each."""


def field_error(kind: object, facts: Mapping[str, object]) -> str:
    """Return what is wrong with the keys and values that are said of a fault, in plain words; empty if nothing is."""
    keys = KEYS.get(str(kind))
    if keys is None:
        return f"no fault {kind!r}; there are: {', '.join(KEYS)}"
    for key, value in facts.items():
        if key not in keys:
            return f"fault {kind} has no key {key!r}; it has: {', '.join(keys) or 'none'}"
        if key in COUNTS and not (isinstance(value, int) and value >= 1):
            return f"{key} is a number from 1 on, not {value!r}"
        if key == "seconds" and not (isinstance(value, int | float) and 0 < value <= LONGEST_S):
            return f"seconds is a number up to {LONGEST_S}, not {value!r}"
    return ""


def consistency_error(fault: InjectedFault) -> str | None:
    """What is wrong with a fault that someone wants to set, in plain words."""
    if fault.kind in ("lost", "reset-pending") and fault.gpu is None:
        return f"fault {fault.kind} needs a GPU"
    if fault.kind == "fail" and (fault.call is None or fault.code is None):
        return "fault fail needs a call and a code"
    if fault.when not in ("before", "after") or fault.what not in ("gpu", "compute"):
        return "when is before or after, what is gpu or compute"
    if fault.kind == "busy" and fault.calls is None and fault.until is None:
        return "fault busy needs a number of calls or of seconds"
    if fault.kind in ("vf-delay", "slow") and not (fault.delay or 0) > 0:
        return f"fault {fault.kind} needs a number of seconds"
    return None


class FaultInjector:
    """The faults of one node, consumed as calls arrive. Times are seconds on the server's monotonic clock."""

    def __init__(self, faults: list[InjectedFault]) -> None:
        self.active = faults

    def _take(self, fault: InjectedFault) -> None:
        if fault.calls is not None:
            fault.calls -= 1
            if fault.calls <= 0 and fault in self.active:
                self.active.remove(fault)

    @property
    def privileged(self) -> bool:
        return not any(f.kind == "unprivileged" for f in self.active)

    def kill(self) -> str | None:
        """Count a write call; ``before`` or ``after`` when it is the one at which the caller dies."""
        for fault in self.active:
            if fault.kind == "kill":
                fault.nth -= 1
                if fault.nth == 0:
                    self.active.remove(fault)
                    return fault.when
        return None

    def failing(self, call: str, gpu: int, path: str = "") -> int | None:
        """The code that a ``fail`` fault answers this call with, if one applies."""
        for fault in self.active:
            if fault.kind == "fail" and fault.call == call and fault.gpu in (None, gpu) and (fault.path or "") in path:
                if fault.nth > 1:
                    fault.nth -= 1
                    continue
                self._take(fault)
                return fault.code
        return None

    def refusal(self, call: str, gpu: int, gi: int, now: float) -> int | None:
        """The code that a fault answers this write call with, if one applies."""
        failing = self.failing(call, gpu)
        if failing is not None:
            return failing
        return codes.IN_USE if call != "DeviceSetMigMode" and self.busy(gpu, gi, now) else None

    def busy(self, gpu: int, gi: int, now: float) -> bool:
        """Count a write that a ``busy`` fault may meet; whether it does."""
        for fault in list(self.active):
            if fault.kind != "busy" or fault.gpu not in (None, gpu) or fault.instance not in (None, gi):
                continue
            if fault.until is not None and now >= fault.until:
                self.active.remove(fault)
                continue
            self._take(fault)
            return True
        return False

    def _first(self, kind: str, call: str, gpu: int) -> InjectedFault | None:
        """The first fault of a kind that meets this call."""
        for fault in self.active:
            if fault.kind == kind and fault.call in (None, call) and (gpu == EVERY or fault.gpu in (None, gpu)):
                return fault
        return None

    def hangs(self, call: str, gpu: int) -> bool:
        """Whether this call must not return yet."""
        return self._first("hang", call, gpu) is not None

    def delay(self, call: str, gpu: int) -> float:
        """Count a call; how many seconds longer it takes."""
        fault = self._first("slow", call, gpu)
        if fault is None:
            return 0.0
        self._take(fault)
        return fault.delay or 0.0

    def has_no_effect(self, call: str, gpu: int, path: str = "") -> bool:
        """Count a write; whether it only says that it was done."""
        fault = self._first("no-effect", call, gpu)
        if fault is None or (fault.path or "") not in path:
            return False
        self._take(fault)
        return True

    def init_refusal(self) -> int | None:
        """Count an attempt to open NVML; the code that it is refused with, if it is."""
        if self._first("version-mismatch", "Init", WHOLE) is not None:
            return codes.LIB_RM_VERSION_MISMATCH
        return self.failing("Init", WHOLE)

    def replacement_driver(self) -> str | None:
        """Count a write call on the node; the version of the driver that is loaded after it, if one is."""
        for fault in list(self.active):
            if fault.kind == "replace-driver":
                fault.nth -= 1
                if fault.nth <= 0:
                    self.active.remove(fault)
                    return fault.version
        return None

    def lock_busy(self, gpu: int) -> bool:
        """Count an attempt at the unbindLock of a GPU; whether somebody has it."""
        for fault in self.active:
            if fault.kind == "unbind-lock" and fault.gpu in (None, gpu):
                fault.calls = fault.calls or 1
                self._take(fault)
                return True
        return False

    def function_delay(self, gpu: int) -> float:
        """Seconds until the last virtual function of a GPU is there."""
        return next((f.delay or 0.0 for f in self.active if f.kind == "vf-delay" and f.gpu in (None, gpu)), 0.0)

    def mode_busy(self, gpu: int, now: float) -> bool:
        """Whether a mode change finds the GPU busy, so that it stays pending."""
        for fault in list(self.active):
            if fault.gpu not in (None, gpu) or fault.kind not in ("busy", "reset-pending"):
                continue
            if fault.until is not None and now >= fault.until:
                self.active.remove(fault)
                continue
            self._take(fault)
            return True
        return False

    def half_creates(self, gpu: int, what: str) -> bool:
        """Whether this creation goes half wrong."""
        for fault in self.active:
            if fault.kind == "half-create" and fault.what == what and fault.gpu in (None, gpu):
                fault.calls = fault.calls or 1
                self._take(fault)
                return True
        return False

    def loses(self, gpu: int) -> bool:
        """Count a write call on a GPU; whether it falls off the bus now."""
        for fault in list(self.active):
            if fault.kind == "lost" and fault.gpu == gpu:
                fault.nth -= 1
                if fault.nth <= 0:
                    self.active.remove(fault)
                    return True
        return False

    def after_reset(self, gpu: int) -> None:
        """A reset ends what waited for one."""
        self.active[:] = [f for f in self.active if not (f.kind == "reset-pending" and f.gpu == gpu)]
