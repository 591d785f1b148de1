"""What a node is told with a decision: its status, from what is and what was told before."""

from __future__ import annotations

import msgspec

from aliquot.kubernetes.gpu.node_status import SUCCESS, Status
from aliquot.kubernetes.label_agent.agent.observation import Memory, Observation
from aliquot.kubernetes.node_agent import messages as phrases

_MOST_DETAILS, _LONGEST_DETAIL = 20, 1000
_MET = ("Applied", "AlreadyApplied", "Healed")
HEALING = "Healing"


def status(
    o: Observation, state: str, reason: str, message: str, *, next_step: str = "", details: tuple[str, ...] = ()
) -> Status:
    """As of now: ``since`` stays while nothing moved."""
    source = o.wish.source if o.wish else ""
    details = tuple(each[:_LONGEST_DETAIL] for each in details[:_MOST_DETAILS])  # all annotations together: 256 KiB
    made = Status(state, reason, message, o.label or "", source, next_step, o.digest, details=details)
    return made.at(o.now, o.status)


def untold(o: Observation, new: Status) -> bool:
    """True if the node does not say so yet. Progress of a change that is over is not missed."""
    former = msgspec.structs.replace(o.status, progress="") if o.status is not None else None
    return o.state != new.state or not new.same(former)


def success(o: Observation, m: Memory) -> Status:
    """The sentence of the last change stays until there is another: a look that finds nothing to do is no news."""
    former = o.status
    if m.did and m.did_for == o.digest:
        reason, message = "Healed" if former is not None and former.reason == HEALING else "Applied", m.did
        if former is not None and former.message == m.did:
            reason = former.reason
    elif former is not None and former.state == SUCCESS and former.digest == o.digest:
        reason, message = former.reason, former.message
    else:
        reason, message = "AlreadyApplied", f"nothing to do: {phrases.geometry(o.inventory, o.wish)}"
    left_alone = o.wish.desired.notes if o.wish is not None and o.wish.desired is not None else ()
    warnings = o.prediction.warnings if o.prediction is not None else ()
    misnamed = o.prediction.refusals if o.prediction is not None else ()
    unpublished = (m.unpublished,) if m.unpublished else ()
    return status(o, SUCCESS, reason, message, details=(*unpublished, *o.remarks, *misnamed, *left_alone, *warnings))


def was_met(o: Observation) -> bool:
    """True if this very wish was met before: what differs now has come from elsewhere."""
    former = o.status
    return former is not None and former.digest == o.digest and former.reason in (*_MET, HEALING, "Drift")
