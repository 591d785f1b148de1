"""What a node is told with a decision: its status, from what is and what was told before."""

from __future__ import annotations

from typing import Literal

import msgspec

from aliquot.kubernetes.gpu.names import LabelState
from aliquot.kubernetes.gpu.node_status import AgentStatus
from aliquot.kubernetes.label_agent.agent.observation import AgentMemory, Observation
from aliquot.kubernetes.node_agent import messages as phrases

_MOST_DETAILS, _LONGEST_DETAIL = 20, 1000
_MET = ("Applied", "AlreadyApplied", "Healed")
HEALING = "Healing"


def status(
    observation: Observation,
    state: LabelState | Literal[""],
    reason: str,
    message: str,
    *,
    next_step: str = "",
    details: tuple[str, ...] = (),
) -> AgentStatus:
    """As of now: ``since`` stays while nothing moved."""
    source = observation.request.source if observation.request else ""
    details = tuple(each[:_LONGEST_DETAIL] for each in details[:_MOST_DETAILS])  # all annotations together: 256 KiB
    built = AgentStatus(
        state, reason, message, observation.label or "", source, next_step, observation.digest, details=details
    )
    return built.with_since(observation.now, observation.status)


def needs_report(observation: Observation, new: AgentStatus) -> bool:
    """True if the node does not say so yet. Progress of a change that is over is not missed."""
    previous = msgspec.structs.replace(observation.status, progress="") if observation.status is not None else None
    return observation.state != new.state or not new.same_as(previous)


def success(observation: Observation, memory: AgentMemory) -> AgentStatus:
    """The sentence of the last change stays until there is another: a look that finds nothing to do is no news."""
    previous = observation.status
    if memory.last_change and memory.last_change_for == observation.digest:
        reason = "Healed" if previous is not None and previous.reason == HEALING else "Applied"
        message = memory.last_change
        if previous is not None and previous.message == memory.last_change:
            reason = previous.reason
    elif previous is not None and previous.state == "success" and previous.digest == observation.digest:
        reason, message = previous.reason, previous.message
    else:
        reason = "AlreadyApplied"
        message = f"nothing to do: {phrases.geometry(observation.inventory, observation.request)}"
    left_alone = (
        observation.request.desired.notes
        if observation.request is not None and observation.request.desired is not None
        else ()
    )
    warnings = observation.prediction.warnings if observation.prediction is not None else ()
    misnamed = observation.prediction.refusals if observation.prediction is not None else ()
    unpublished = (memory.unpublished,) if memory.unpublished else ()
    return status(
        observation,
        "success",
        reason,
        message,
        details=(*unpublished, *observation.remarks, *misnamed, *left_alone, *warnings),
    )


def was_met(observation: Observation) -> bool:
    """True if this very wish was met before: what differs now has come from elsewhere."""
    previous = observation.status
    return (
        previous is not None and previous.digest == observation.digest and previous.reason in (*_MET, HEALING, "Drift")
    )
