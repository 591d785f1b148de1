"""Texts for the outcome of a change. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from aliquot.core.engine.history import EndStatus
from aliquot.core.model.inventory import Inventory
from aliquot.core.model.plan import Plan
from aliquot.core.rendering import plan_summary as summary
from aliquot.dashboard.local.previews import Address
from aliquot.dashboard.view_models import ChangeOutcome
from aliquot.errors import AliquotError, StalePlanError

if TYPE_CHECKING:
    from aliquot.core.engine.context import ApplyOutcome

_SENTENCES: dict[EndStatus, str] = {
    "undone": "Failed. The previous state was restored.",
    "stopped": "Stopped by a signal. The previous state was restored.",
    "partial": "Failed, and not everything could be reverted.",
}


def apply_outcome(plan: Plan, before: Inventory, outcome: ApplyOutcome, address: Address) -> ChangeOutcome:
    """Describe the outcome of an apply that was started."""
    if outcome.status == "nothing":
        return ChangeOutcome.nothing("the node already matches the request.")
    if outcome.error is None:
        did = f"{summary.applied_text(plan)}."
        if outcome.status == "done":
            return ChangeOutcome.done(f"{did} Verified by reading the GPUs again.")
        return ChangeOutcome("reboot", f"Done: {did} {_reboot(plan, before)}. Then request the same again.")
    error = outcome.error
    details = [*error.details, *outcome.sentences]
    details += [f"differs from the previous state: {d.message}" for d in outcome.drift]
    step = address(error.next_step, plan.node) if error.next_step else ""
    if not outcome.calls and outcome.status != "partial":
        return ChangeOutcome.refused(error.brief, tuple(details), error.code, step)
    details.insert(0, f"{error.code}: {error.brief}")
    return ChangeOutcome(outcome.status, _SENTENCES[outcome.status], tuple(details), error.code, step)


def refused(node: str, error: AliquotError, address: Address, *, touched: bool = False) -> ChangeOutcome:
    """Describe an apply that was not started, or (``touched``) one whose result could not be read."""
    step = address(error.next_step, node) if error.next_step else ""
    if touched:
        return ChangeOutcome(
            "partial", f"The change was started, and then failed: {error.brief}", error.details, error.code, step
        )
    # The details of a plan for an earlier state are fingerprints, which say nothing on a page.
    details = () if isinstance(error, StalePlanError) else error.details
    return ChangeOutcome.refused(error.brief, details, error.code, step)


_ORDER: tuple[EndStatus, ...] = ("partial", "undone", "stopped", "refused", "reboot", "done", "nothing")


def merge_outcomes(parts: Sequence[tuple[str, ChangeOutcome]]) -> ChangeOutcome:
    """Merge the outcomes of several nodes, errors first. If only some nodes changed, the result is ``partial``."""
    if len(parts) == 1:
        return parts[0][1]
    words = {done.status for _, done in parts}
    well = words <= {"done", "nothing", "reboot"}
    worst: EndStatus = next((word for word in _ORDER if word in words), "nothing")
    if not well and words & {"done", "reboot"}:
        worst = "partial"
    bad = [(node, done) for node, done in parts if done.status not in ("done", "nothing", "reboot")]
    details = tuple(
        f"{node}: {line}" for node, done in [*bad, *(p for p in parts if p not in bad)] for line in _all(done)
    )
    first = bad[0][1] if bad else parts[0][1]
    count = sum(done.status in ("done", "reboot", "nothing") for _, done in parts)
    sentence = f"{count} of {len(parts)} nodes match the request."
    return ChangeOutcome(worst, sentence, details, first.code, first.next_step)


def _all(done: ChangeOutcome) -> tuple[str, ...]:
    return (done.sentence, *done.details)


def _reboot(plan: Plan, before: Inventory) -> str:
    """Say what to reboot. A guest with a passed-through GPU cannot reset it; its host needs no reboot."""
    guest = any(g.pci in plan.reboots and not g.resettable for g in before.gpus)
    return f"GPU {', '.join(plan.reboots)} needs a reboot of {'this VM' if guest else plan.node}"
