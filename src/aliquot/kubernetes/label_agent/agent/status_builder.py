"""Builder of the node's status for a decision, from the observation and the previous status."""

from __future__ import annotations

from typing import Literal

import msgspec

from aliquot.kubernetes.gpu.change_report import ChangeReport
from aliquot.kubernetes.gpu.names import LabelState
from aliquot.kubernetes.gpu.node_status import AgentStatus
from aliquot.kubernetes.gpu.reasons import ALREADY_APPLIED, StatusReason
from aliquot.kubernetes.label_agent.agent.observation import AgentMemory, Observation
from aliquot.kubernetes.node_agent import messages as phrases

_MOST_DETAILS, _LONGEST_DETAIL = 20, 1000
HEALING: StatusReason = "Healing"
_WAS_MET: tuple[StatusReason, ...] = ("Applied", ALREADY_APPLIED, "Healed", HEALING, "Drift")


def status(
    observation: Observation,
    state: LabelState | Literal[""],
    reason: StatusReason,
    message: str,
    *,
    next_step: str = "",
    details: tuple[str, ...] = (),
    change: ChangeReport | None = None,
) -> AgentStatus:
    """Build a status; ``since`` stays if state, reason and config are unchanged."""
    source = observation.request.source if observation.request else ""
    details = tuple(each[:_LONGEST_DETAIL] for each in details[:_MOST_DETAILS])  # all annotations together: 256 KiB
    built = AgentStatus(
        state,
        reason,
        message,
        observation.label or "",
        source,
        _in_pod(next_step, observation.pod),
        observation.digest,
        details=details,
        change=change,
    )
    return built.with_since(observation.now, observation.status)


def _in_pod(command: str, pod: str) -> str:
    """Return a command of Aliquot as it is run in the agent's pod: a node may have no other Aliquot."""
    namespace, _, name = pod.partition("/")
    return f"kubectl exec -n {namespace} {name} -- {command}" if name and command.startswith("aliquot ") else command


def needs_report(observation: Observation, new: AgentStatus) -> bool:
    """Report whether the node does not have this status yet. The progress of an ended change is ignored."""
    previous = msgspec.structs.replace(observation.status, progress="") if observation.status is not None else None
    return observation.state != new.state or not new.same_as(previous)


def success(observation: Observation, memory: AgentMemory) -> AgentStatus:
    """Build the status of a fulfilled request. The sentence of the last change stays until the next change."""
    previous, change = observation.status, None
    if memory.last_change and memory.last_change_for == observation.digest:
        reason: StatusReason = "Healed" if previous is not None and previous.reason == HEALING else "Applied"
        message, change = memory.last_change, memory.last_report
        if previous is not None and previous.message == memory.last_change:
            reason = previous.reason
    elif previous is not None and previous.state == "success" and previous.digest == observation.digest:
        reason, message, change = previous.reason, previous.message, previous.change
    else:
        reason = ALREADY_APPLIED
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
        change=change,
    )


def was_met(observation: Observation) -> bool:
    """Report whether this request was fulfilled before, so that another program caused the difference."""
    previous = observation.status
    return previous is not None and previous.digest == observation.digest and previous.reason in _WAS_MET
