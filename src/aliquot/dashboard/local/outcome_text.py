"""How a change ended, in the page's words. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from aliquot.core.model.inventory import Inventory
from aliquot.core.model.plan import Plan
from aliquot.core.rendering import plan_summary as summary
from aliquot.dashboard.local.previews import Address
from aliquot.dashboard.view_models import ChangeOutcome
from aliquot.errors import AliquotError

if TYPE_CHECKING:
    from aliquot.core.engine.context import ApplyOutcome

_SENTENCES = {
    "undone": "It failed, and the former state is back.",
    "stopped": "A signal stopped it, and the former state is back.",
    "partial": "It failed, and not all could be undone.",
}


def apply_outcome(plan: Plan, before: Inventory, outcome: ApplyOutcome, address: Address) -> ChangeOutcome:
    """An apply that was begun."""
    if outcome.status == "nothing":
        return ChangeOutcome("nothing", "There was nothing to do: it is as asked already.")
    if outcome.error is None:
        sentence = f"Done: {summary.applied_text(plan)}."
        if outcome.status == "done":
            return ChangeOutcome("done", f"{sentence} Verified by a fresh read.")
        return ChangeOutcome("reboot", f"{sentence} {_reboot(plan, before)}, then ask for the same again.")
    error = outcome.error
    details = [f"{error.code}: {error.brief}", *error.details, *outcome.sentences]
    details += [f"differs from before: {d.message}" for d in outcome.drift]
    status = outcome.status if outcome.calls or outcome.status == "partial" else "refused"
    sentence = _SENTENCES[outcome.status] if status != "refused" else f"Nothing was changed: {error.brief}"
    step = address(error.next_step, plan.node) if error.next_step else ""
    return ChangeOutcome(status, sentence, tuple(details if status != "refused" else details[1:]), error.code, step)


def refused(node: str, error: AliquotError, address: Address, *, touched: bool = False) -> ChangeOutcome:
    """An apply that was not begun, or (``touched``) one of which nobody could read afterwards what it came to."""
    step = address(error.next_step, node) if error.next_step else ""
    if touched:
        return ChangeOutcome("partial", f"It was begun, and then: {error.brief}", error.details, error.code, step)
    return ChangeOutcome("refused", f"Nothing was changed: {error.brief}", error.details, error.code, step)


_ORDER = ("partial", "undone", "stopped", "refused", "reboot", "done", "nothing")


def merge_outcomes(parts: Sequence[tuple[str, ChangeOutcome]]) -> ChangeOutcome:
    """Several nodes' ends as one: what went wrong first. Where some changed and others did not it is ``partial``."""
    if len(parts) == 1:
        return parts[0][1]
    words = {done.status for _, done in parts}
    well = words <= {"done", "nothing", "reboot"}
    worst = next((word for word in _ORDER if word in words), "nothing")
    if not well and words & {"done", "reboot"}:
        worst = "partial"
    bad = [(node, done) for node, done in parts if done.status not in ("done", "nothing", "reboot")]
    details = tuple(
        f"{node}: {line}" for node, done in [*bad, *(p for p in parts if p not in bad)] for line in _all(done)
    )
    first = bad[0][1] if bad else parts[0][1]
    count = sum(done.status in ("done", "reboot", "nothing") for _, done in parts)
    sentence = f"{count} of {len(parts)} nodes are as asked."
    return ChangeOutcome(worst, sentence, details, first.code, first.next_step)


def _all(done: ChangeOutcome) -> tuple[str, ...]:
    return (done.sentence, *done.details)


def _reboot(plan: Plan, before: Inventory) -> str:
    """What is to be restarted: a guest that has the GPU whole cannot reset it, and its host need not be restarted."""
    guest = any(g.pci in plan.reboots and not g.resettable for g in before.gpus)
    return f"GPU {', '.join(plan.reboots)} needs a reboot of {'this virtual machine' if guest else plan.node}"
