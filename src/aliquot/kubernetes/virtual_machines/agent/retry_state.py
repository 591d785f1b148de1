"""Results of attempts to apply each GPU's desired state, and the time of the next attempt."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from aliquot.core.model.plan import Blocker, Plan
from aliquot.errors import AliquotError, Message
from aliquot.foundation.backoff import Backoff
from aliquot.kubernetes.gpu.reasons import reason_word
from aliquot.kubernetes.virtual_machines.harvester.node_view import Result
from aliquot.kubernetes.virtual_machines.harvester.reasons import PENDING, ObjectReason

BACKOFF = Backoff(first=1.0, longest=300.0)
LOCK_BACKOFF = Backoff(first=1.0, longest=15.0)
MAX_REPEATS = 3
"""How many times in a row the same change may run without back-off."""
CALM_S = 600.0
"""After this many seconds, the same change no longer counts as repeated."""
_MOST = 1000
"""The most characters of a condition's message: an event takes 1,024."""


class FailedAttempt(msgspec.Struct, frozen=True):
    """An attempt at a desired state that must wait before it is repeated."""

    digest: str
    """Identifies the desired state."""
    failures: int
    due_at: float
    """When the next attempt is due, on a monotonic clock."""
    result: Result | None = None
    """None if there is nothing to report."""


class RepeatedChange(msgspec.Struct, frozen=True):
    """A change that ran several times in a row on a GPU."""

    digest: str
    times: int
    last_at: float


class RetryTracker:
    """The agent's memory between rounds, by PCI address. It may be lost: a new agent tries immediately."""

    def __init__(self) -> None:
        self._failed: dict[str, FailedAttempt] = {}
        self._done: dict[str, RepeatedChange] = {}
        self._reverted: dict[str, FailedAttempt] = {}

    def is_due(self, pci: str, digest: str, now: float) -> bool:
        """Report whether this desired state may be tried. One that differs from the failed one is due immediately."""
        return all(now >= last.due_at for last in self._attempts_for(pci, digest))

    def _attempts_for(self, pci: str, digest: str) -> list[FailedAttempt]:
        """Return the attempts that are known for exactly this desired state."""
        found = (self._failed.get(pci), self._reverted.get(pci))
        return [last for last in found if last is not None and last.digest == digest]

    def record_success(self, pci: str, digest: str, now: float) -> None:
        """Record a change that was applied.

        If the same change is soon needed again and again, another process reverts it: then back off exponentially, so
        that conflicting controllers do not wear out the GPU.
        """
        self.clear(pci)
        last = self._done.get(pci)
        repeated = last is not None and last.digest == digest and now - last.last_at < CALM_S
        times = last.times + 1 if last is not None and repeated else 1
        self._done[pci] = RepeatedChange(digest, times, now)
        self._reverted.pop(pci, None)
        if times > MAX_REPEATS:
            pause = BACKOFF.pause(times - MAX_REPEATS)
            self._reverted[pci] = FailedAttempt(digest, 0, now + pause, _reverted_result(pci, digest))

    def record_failure(self, pci: str, result: Result, now: float) -> float:
        """Record a failed attempt. Return the seconds until the next one."""
        last = self._failed.get(pci)
        failures = last.failures + 1 if last is not None and last.digest == result.attempt else 1
        pause = BACKOFF.pause(failures)
        self._failed[pci] = FailedAttempt(result.attempt, failures, now + pause, result)
        return pause

    def postpone(self, pci: str, digest: str, now: float) -> None:
        """Delay an attempt that did not fail, but came at the wrong time."""
        last = self._failed.get(pci)
        result = last.result if last is not None and last.digest == digest else None
        self._failed[pci] = FailedAttempt(digest, last.failures if last else 0, now + BACKOFF.first, result)

    def record_lock(self, pci: str, digest: str, holder: str, now: float) -> None:
        """Record that another process is changing the GPUs: not a failure, but a reason to wait until it has ended."""
        last = self._failed.get(pci)
        repeated = last is not None and last.digest == digest and last.result is not None
        times = last.failures + 1 if last is not None and repeated else 1
        who = truncate(holder or "another process", 120)
        result = Result(digest, False, PENDING, f"{who} is changing this node's GPUs: Aliquot waits until it ends")
        self._failed[pci] = FailedAttempt(digest, times, now + LOCK_BACKOFF.pause(times), result)

    def clear(self, pci: str) -> None:
        """Forget the failed attempt of a GPU whose desired state is met or gone."""
        self._failed.pop(pci, None)

    def retain(self, present: Collection[str]) -> None:
        """Forget the GPUs without a desired state."""
        for pci in set(self._failed) - set(present):
            del self._failed[pci]

    def result(self, pci: str, digest: str) -> Result | None:
        """Return the last failure of this desired state; None if it was not tried."""
        return next((last.result for last in self._attempts_for(pci, digest) if last.result is not None), None)

    def next_due_s(self, digests: Mapping[str, str], now: float) -> float | None:
        """Return the seconds until the first of these desired states is due again; None if none has failed."""
        waits = [
            max(last.due_at - now for last in found) for p, d in digests.items() if (found := self._attempts_for(p, d))
        ]
        return max(0.0, min(waits)) if waits else None


def _reverted_result(pci: str, digest: str) -> Result:
    text = "Aliquot made this change several times in a row, and each time it was reverted: retries back off"
    step = f"find what else changes this GPU, then: aliquot show --gpu {pci}"
    return Result(digest, False, "Undone", str(Message(text, step)))


def plan_result(plan: Plan, digest: str) -> Result | None:
    """Return a result that is known before any change: met, or blocked. None if there is work to do."""
    if plan.blocked:
        return Result(digest, False, reason_word(plan.blockers[0].rule), blocked_text(plan.blockers))
    if plan.actions:
        return None
    if plan.reboots:
        text = f"MIG mode of {', '.join(plan.reboots)} changes with the next reboot"
        return Result(digest, False, "RebootNeeded", str(Message(text, "reboot the node")))
    return Result(digest, True, "Applied")


def blocked_text(blockers: Collection[Blocker]) -> str:
    """Return a sentence with the reason, the holders, and the next step."""
    first = next(iter(blockers))
    holders = ", ".join(dict.fromkeys(str(h) for h in first.holders))
    more = f" (and {len(blockers) - 1} more)" if len(blockers) > 1 else ""
    step = first.next_step or ""
    if first.rule == "HELD":
        step = "shut that down; Aliquot then continues by itself"
    parts = [first.message + more, f"in use by {holders}" if holders else ""]
    return str(Message("; ".join(filter(None, parts)), step).cut(_MOST))


def error_result(error: AliquotError, digest: str, rollback_text: str = "") -> Result:
    """Return an error as a result. ``rollback_text`` says what happened to the steps before the error."""
    text = "; ".join(filter(None, (error.brief, rollback_text, *error.details[:2])))
    message = Message(text, error.next_step or "").cut(_MOST)
    return Result(digest, False, error_reason(error), str(message))


def error_reason(error: AliquotError) -> ObjectReason:
    """Return the condition reason of an error."""
    known: dict[str, ObjectReason] = {
        "HARDWARE": "HardwareRefused",
        "IN_USE": "Held",
        "NO_DRIVER": "NoDriver",
        "INTERNAL": "InternalFault",
    }
    return known.get(error.code) or reason_word(error.code)


def truncate(text: str, limit: int = _MOST) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
