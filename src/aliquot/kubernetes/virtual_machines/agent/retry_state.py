"""What became of the wish for each GPU, and when it is worth another try."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from aliquot.core.model.plan import Blocker, Plan
from aliquot.errors import AliquotError
from aliquot.foundation.backoff import Backoff
from aliquot.kubernetes.node_agent.messages import reason_word
from aliquot.kubernetes.virtual_machines.harvester.conditions import PENDING
from aliquot.kubernetes.virtual_machines.harvester.node_view import Result

BACKOFF = Backoff(first=1.0, longest=300.0)
LOCK_BACKOFF = Backoff(first=1.0, longest=15.0)
MAX_REPEATS = 3
"""So often in a row the same may be done at once."""
CALM_S = 600.0
"""After this time the same wish is taken for a new one."""
APPLIED = "Applied"
_MOST = 1000
"""Characters of a condition's message: an event has room for 1,024."""


class FailedAttempt(msgspec.Struct, frozen=True):
    """The last attempt at one wish (by its digest) that came to nothing. ``due_at`` is when, on a clock that only goes
    forward, the next one is due. ``result`` is None where there is nothing to tell.
    """

    digest: str
    failures: int
    due_at: float
    result: Result | None = None


class RepeatedChange(msgspec.Struct, frozen=True):
    """How often in a row the same was done to a GPU, and when last."""

    digest: str
    times: int
    last_at: float


class RetryTracker:
    """The agent's memory between looks, by PCI address. It may be lost: the next agent tries at once."""

    def __init__(self) -> None:
        self._failed: dict[str, FailedAttempt] = {}
        self._done: dict[str, RepeatedChange] = {}
        self._reverted: dict[str, FailedAttempt] = {}

    def is_due(self, pci: str, digest: str, now: float) -> bool:
        """Whether this wish may be tried: another wish than the one that failed may be at once."""
        return all(now >= last.due_at for last in self._attempts_for(pci, digest))

    def _attempts_for(self, pci: str, digest: str) -> list[FailedAttempt]:
        """What is known of this very wish."""
        found = (self._failed.get(pci), self._reverted.get(pci))
        return [last for last in found if last is not None and last.digest == digest]

    def record_success(self, pci: str, digest: str, now: float) -> None:
        """It was done. Where the same has to be done soon again, and again, somebody undoes it: two hands on one GPU
        must not wear it out.
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
        """An attempt failed; how long, in seconds, until the next one."""
        last = self._failed.get(pci)
        failures = last.failures + 1 if last is not None and last.digest == result.attempt else 1
        pause = BACKOFF.pause(failures)
        self._failed[pci] = FailedAttempt(result.attempt, failures, now + pause, result)
        return pause

    def postpone(self, pci: str, digest: str, now: float) -> None:
        """Nothing failed, but it is not the moment: the same again a little later."""
        last = self._failed.get(pci)
        result = last.result if last is not None and last.digest == digest else None
        self._failed[pci] = FailedAttempt(digest, last.failures if last else 0, now + BACKOFF.first, result)

    def record_lock(self, pci: str, digest: str, holder: str, now: float) -> None:
        """Another process is changing the GPUs: this is no failure, and the same is tried again when it has ended."""
        last = self._failed.get(pci)
        repeated = last is not None and last.digest == digest and last.result is not None
        times = last.failures + 1 if last is not None and repeated else 1
        who = truncate(holder or "another process", 120)
        result = Result(digest, False, PENDING, f"{who} is changing this node's GPUs: it goes on when that has ended")
        self._failed[pci] = FailedAttempt(digest, times, now + LOCK_BACKOFF.pause(times), result)

    def clear(self, pci: str) -> None:
        """The wish is met, or there is none."""
        self._failed.pop(pci, None)

    def retain(self, present: Collection[str]) -> None:
        """Forgets GPUs that nobody wishes anything of."""
        for pci in set(self._failed) - set(present):
            del self._failed[pci]

    def result(self, pci: str, digest: str) -> Result | None:
        """How this wish failed last; None for one that was not tried."""
        return next((last.result for last in self._attempts_for(pci, digest) if last.result is not None), None)

    def next_due_s(self, digests: Mapping[str, str], now: float) -> float | None:
        """Seconds until the first of these wishes, which have failed, is due again; None where none has."""
        waits = [
            max(last.due_at - now for last in found) for p, d in digests.items() if (found := self._attempts_for(p, d))
        ]
        return max(0.0, min(waits)) if waits else None


def _reverted_result(pci: str, digest: str) -> Result:
    text = "it was done several times in a row, and each time somebody undid it: now it waits longer each time"
    return Result(
        digest, False, "Undone", f"{text} | next: find who else changes this GPU, then: aliquot show --gpu {pci}"
    )


def plan_result(plan: Plan, digest: str) -> Result | None:
    """What is known of a wish before anything is done: it is met, or it cannot be. None where there is work to do."""
    if plan.blocked:
        return Result(digest, False, reason_word(plan.blockers[0].rule), blocked_text(plan.blockers))
    if plan.actions:
        return None
    if plan.reboots:
        text = f"MIG mode of {', '.join(plan.reboots)} changes with the next reboot | next: reboot the node"
        return Result(digest, False, "RebootNeeded", text)
    return Result(digest, True, APPLIED)


def blocked_text(blockers: Collection[Blocker]) -> str:
    """Why, who is in the way, and what to do: one sentence."""
    first = next(iter(blockers))
    holders = ", ".join(dict.fromkeys(str(h) for h in first.holders))
    more = f" (and {len(blockers) - 1} more)" if len(blockers) > 1 else ""
    step = first.next_step or ""
    if first.rule == "HELD":
        step = "shut that down; it then goes on by itself"
    parts = [first.message + more, f"in use by {holders}" if holders else ""]
    return truncate("; ".join(filter(None, parts)) + (f" | next: {step}" if step else ""))


def error_result(error: AliquotError, digest: str, rollback_text: str = "") -> Result:
    """An error as a result; ``rollback_text`` says what became of what had been done before it."""
    text = "; ".join(filter(None, (error.brief, rollback_text, *error.details[:2])))
    step = f" | next: {error.next_step}" if error.next_step else ""
    return Result(digest, False, error_reason(error), truncate(text + step))


def error_reason(error: AliquotError) -> str:
    """A word for conditions."""
    known = {"HARDWARE": "HardwareRefused", "IN_USE": "Held", "NO_DRIVER": "NoDriver", "INTERNAL": "InternalFault"}
    return known.get(error.code) or reason_word(error.code)


def truncate(text: str, limit: int = _MOST) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
