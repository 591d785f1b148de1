"""Injected faults. The node remembers each of them until it is used up.

- ``busy``: IN_USE for the next ``calls`` write calls, or ``until`` a time, on a GPU or one instance
- ``reset-pending``: a mode change stays pending (activation IN_USE) for ``calls`` calls, else until a reset
- ``lost``: the GPU is lost now, or ``after`` that many write calls on it
- ``half-create``: the call returns UNKNOWN. With ``what`` gpu the GPU instance is created all the same. With ``what``
  compute the compute instance is not created.
- ``fail``: ``call`` returns ``code`` (an errno for writes to the kernel's files) and does nothing, the next ``calls``
  times, from the ``nth`` on. With ``path``, only for files whose path contains it.
- ``kill``: SIGKILL for the caller ``before`` or ``after`` the ``nth`` write call on the node from now on
- ``unbind-lock``: the unbindLock of a GPU cannot be taken the next ``calls`` times
- ``vf-delay``: virtual functions appear one by one within ``seconds`` (``delay``)
- ``unprivileged``: all callers lack permission until faults are cleared
- ``hang``: ``call`` (by default every call) does not return until the fault is cleared or the caller ends
- ``slow``: ``call`` (by default every call) takes ``seconds`` longer (``delay``), the next ``calls`` times
- ``no-effect``: ``call`` (by default every write call) returns success and changes nothing
- ``version-mismatch``: opening NVML returns LIB_RM_VERSION_MISMATCH; open sessions continue
- ``replace-driver``: another driver (``version``) is loaded now, or ``after`` that many write calls on the node.
  Sessions and handles become invalid; processes, virtual functions and instances are lost.
- ``xid``: not a failure but an event, XID ``code`` now on a GPU, or attributed to ``instance`` (``7``, ``7/0``)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from aliquot.sim import codes
from aliquot.sim.state import WHOLE, Creation, FaultKind, InjectedFault, KillPhase

KEYS: dict[FaultKind, tuple[str, ...]] = {
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
"""The accepted fields of each kind. Any other field would have no effect, so it is rejected."""
COUNTS = ("calls", "nth", "after")
LONGEST_S = 1_000_000

EVERY = -2
"""The GPU of a call that reads all GPUs: the faults of each GPU apply."""


def field_error(kind: object, facts: Mapping[str, object]) -> str:
    """Return why the keys and values of a fault are invalid, "" if they are valid."""
    keys = next((keys for known, keys in KEYS.items() if known == kind), None)
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
    """Return why a fault cannot be set, None if it can."""
    if fault.kind in ("lost", "reset-pending") and fault.gpu is None:
        return f"fault {fault.kind} needs a GPU"
    if fault.kind == "fail" and (fault.call is None or fault.code is None):
        return "fault fail needs a call and a code"
    if fault.when not in get_args(KillPhase) or fault.what not in get_args(Creation):
        return "when is before or after, what is gpu or compute"
    if fault.kind == "busy" and fault.calls is None and fault.until is None:
        return "fault busy needs a number of calls or of seconds"
    if fault.kind in ("vf-delay", "slow") and not (fault.delay or 0) > 0:
        return f"fault {fault.kind} needs a number of seconds"
    return None


class FaultInjector:
    """The faults of one node, which are consumed as calls arrive. Times are seconds on the server's monotonic clock."""

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

    def kill(self) -> KillPhase | None:
        """Count a write call. Return ``before`` or ``after`` if the caller is killed at this call."""
        for fault in self.active:
            if fault.kind == "kill":
                fault.nth -= 1
                if fault.nth == 0:
                    self.active.remove(fault)
                    return fault.when
        return None

    def failing(self, call: str, gpu: int, path: str = "") -> int | None:
        """Return the code with which a ``fail`` fault answers this call, or None."""
        for fault in self.active:
            if fault.kind == "fail" and fault.call == call and fault.gpu in (None, gpu) and (fault.path or "") in path:
                if fault.nth > 1:
                    fault.nth -= 1
                    continue
                self._take(fault)
                return fault.code
        return None

    def refusal(self, call: str, gpu: int, gi: int, now: float) -> int | None:
        """Return the code with which a fault answers this write call, or None."""
        failing = self.failing(call, gpu)
        if failing is not None:
            return failing
        return codes.IN_USE if call != "DeviceSetMigMode" and self.busy(gpu, gi, now) else None

    def busy(self, gpu: int, gi: int, now: float) -> bool:
        """Count a write for a ``busy`` fault. Return whether it applies."""
        for fault in list(self.active):
            if fault.kind != "busy" or fault.gpu not in (None, gpu) or fault.instance not in (None, gi):
                continue
            if fault.until is not None and now >= fault.until:
                self.active.remove(fault)
                continue
            self._take(fault)
            return True
        return False

    def _first(self, kind: FaultKind, call: str, gpu: int) -> InjectedFault | None:
        """Return the first fault of a kind that applies to this call."""
        for fault in self.active:
            if fault.kind == kind and fault.call in (None, call) and (gpu == EVERY or fault.gpu in (None, gpu)):
                return fault
        return None

    def hangs(self, call: str, gpu: int) -> bool:
        """Return whether this call must not return yet."""
        return self._first("hang", call, gpu) is not None

    def delay(self, call: str, gpu: int) -> float:
        """Count a call. Return its additional duration in seconds."""
        fault = self._first("slow", call, gpu)
        if fault is None:
            return 0.0
        self._take(fault)
        return fault.delay or 0.0

    def has_no_effect(self, call: str, gpu: int, path: str = "") -> bool:
        """Count a write. Return whether it only pretends to succeed."""
        fault = self._first("no-effect", call, gpu)
        if fault is None or (fault.path or "") not in path:
            return False
        self._take(fault)
        return True

    def init_refusal(self) -> int | None:
        """Count an attempt to open NVML. Return the code that refuses it, or None."""
        if self._first("version-mismatch", "Init", WHOLE) is not None:
            return codes.LIB_RM_VERSION_MISMATCH
        return self.failing("Init", WHOLE)

    def replacement_driver(self) -> str | None:
        """Count a write call on the node. Return the version of the driver that is loaded after it, or None."""
        for fault in list(self.active):
            if fault.kind == "replace-driver":
                fault.nth -= 1
                if fault.nth <= 0:
                    self.active.remove(fault)
                    return fault.version
        return None

    def lock_busy(self, gpu: int) -> bool:
        """Count an attempt to take a GPU's unbindLock. Return whether another client holds it."""
        for fault in self.active:
            if fault.kind == "unbind-lock" and fault.gpu in (None, gpu):
                fault.calls = fault.calls or 1
                self._take(fault)
                return True
        return False

    def function_delay(self, gpu: int) -> float:
        """Return the seconds until the last virtual function of a GPU appears."""
        return next((f.delay or 0.0 for f in self.active if f.kind == "vf-delay" and f.gpu in (None, gpu)), 0.0)

    def mode_busy(self, gpu: int, now: float) -> bool:
        """Return whether a mode change finds the GPU busy and stays pending."""
        for fault in list(self.active):
            if fault.gpu not in (None, gpu) or fault.kind not in ("busy", "reset-pending"):
                continue
            if fault.until is not None and now >= fault.until:
                self.active.remove(fault)
                continue
            self._take(fault)
            return True
        return False

    def half_creates(self, gpu: int, what: Creation) -> bool:
        """Return whether this creation only half succeeds."""
        for fault in self.active:
            if fault.kind == "half-create" and fault.what == what and fault.gpu in (None, gpu):
                fault.calls = fault.calls or 1
                self._take(fault)
                return True
        return False

    def loses(self, gpu: int) -> bool:
        """Count a write call on a GPU. Return whether it falls off the bus now."""
        for fault in list(self.active):
            if fault.kind == "lost" and fault.gpu == gpu:
                fault.nth -= 1
                if fault.nth <= 0:
                    self.active.remove(fault)
                    return True
        return False

    def after_reset(self, gpu: int) -> None:
        """End the faults that last until a reset."""
        self.active[:] = [f for f in self.active if not (f.kind == "reset-pending" and f.gpu == gpu)]
