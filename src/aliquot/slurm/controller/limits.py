"""Why a record is not cut now, whatever else is chosen; "" where nothing speaks against it."""

from __future__ import annotations

from collections.abc import Mapping

from aliquot.slurm.controller.job_demand import JobDemand
from aliquot.slurm.controller.models import MARK, SlurmNodeState


def state_blocker(node_state: SlurmNodeState) -> str:
    """What it is, and what is on it."""
    node = node_state.node
    if node_state.host.rules.untouched:
        return "it is to be left untouched (settings)"
    if node_state.shut or node is None:
        return node_state.shut or "Slurm has no such node now"
    if not node.answers:
        return f"it is {'+'.join(sorted(node.states))} in Slurm ({node.reason or 'no reason given'})"
    if node.draining and not node.reason.startswith(MARK):
        return f"it was drained by somebody else ({node.reason or 'no reason given'})"
    if not node_state.gpus:
        return "it has no GPU that can be cut"
    if node_state.jobs:
        return f"{node_state.jobs} {'job has' if node_state.jobs == 1 else 'jobs have'} resources on it"
    return ""


def rate_blocker(node_state: SlurmNodeState, now: float) -> str:
    """How soon after its last change, its last failure, its last job."""
    bound = node_state.host.limits
    if now < node_state.retry_at:
        return f"the last change failed ({node_state.failure}); tried again in {node_state.retry_at - now:.0f} s"
    idle = now - node_state.idle_since
    if idle < bound.idle_s and not node_state.waiting:
        return f"idle for {idle:.0f} s only, {bound.idle_s:.0f} s are asked (idle)"
    since = now - node_state.last_change
    if since < bound.between_s:
        return f"cut {since:.0f} s ago, {bound.between_s:.0f} s lie between two changes (between)"
    if node_state.recent >= bound.per_hour:
        return f"cut {node_state.recent} times in the last hour, at most {bound.per_hour} (changes-per-hour)"
    return ""


def promise_blocker(name: str, promised: Mapping[str, JobDemand], demand: JobDemand) -> str:
    """Why a job may not have promised slices cut; "" if nothing is promised, or to a job behind it."""
    first = promised.get(name)
    if first is None or (demand.rank < first.rank and not demand.follows):
        return ""
    return f"its free slices are promised to job {first.job}"


def share(limit: int) -> int:
    """How many of an hour's changes one user may cause."""
    return limit - limit // 4
