"""Reasons why a node is not repartitioned now, regardless of other choices; "" if there is none."""

from __future__ import annotations

from collections.abc import Mapping

from aliquot.slurm.controller.job_demand import JobDemand
from aliquot.slurm.controller.models import MARK, SlurmNodeState


def state_blocker(node_state: SlurmNodeState) -> str:
    """Return what blocks a node because of its state or its jobs."""
    node = node_state.node
    if node_state.host.rules.untouched:
        return "the settings leave it untouched (untouched: true)"
    if node_state.shut or node is None:
        return node_state.shut or "Slurm does not have the node now"
    if not node.answers:
        return f"it is {'+'.join(sorted(node.states))} in Slurm ({node.reason or 'no reason given'})"
    if node.draining and not node.reason.startswith(MARK):
        return f"another user or program drained it ({node.reason or 'no reason given'})"
    if node_state.in_maintenance:
        return "a reservation for maintenance keeps jobs from it"
    if not node_state.gpus:
        return "it has no GPU that can be partitioned"
    if node_state.jobs and not node_state.board:
        return f"{node_state.jobs} {'job has' if node_state.jobs == 1 else 'jobs have'} resources on it"
    return ""


def rate_blocker(node_state: SlurmNodeState, now: float, *, shared: bool) -> str:
    """Return what blocks a node because its last change, failure or job was too recent.

    Unless the changes are ``shared`` with another user whose job waits, no limit keeps GPUs idle.
    """
    bound = node_state.host.limits
    if now < node_state.retry_at:
        return failure_text(node_state, now)
    idle = now - node_state.idle_since
    if idle < bound.idle_s and not node_state.waiting and not node_state.board:
        return f"idle for only {idle:.0f} s of {bound.idle_s:.0f} s (idle)"
    if not shared:
        return ""
    since = now - node_state.last_change
    if since < bound.between_s:
        return f"changed {since:.0f} s ago, at least {bound.between_s:.0f} s must pass (between)"
    if node_state.recent >= bound.per_hour:
        return f"changed {node_state.recent} times in the last hour, at most {bound.per_hour} (changes-per-hour)"
    return ""


def failure_text(node_state: SlurmNodeState, now: float) -> str:
    """Return the failure of a node's last change, and when the controller tries again (``now`` and it in seconds)."""
    again = f"the controller tries again in {max(0.0, node_state.retry_at - now):.0f} s"
    return f"the last change failed ({node_state.failure}); {again}"


def promise_blocker(name: str, promised: Mapping[str, JobDemand], demand: JobDemand) -> str:
    """Return why promised devices block a job; "" if nothing is promised, or only to a job behind it."""
    first = promised.get(name)
    if first is None or first.job == demand.job or (demand.rank < first.rank and not demand.follows):
        return ""
    return f"its free devices are promised to job {first.job}"


def share(limit: int) -> int:
    """Return how many of an hour's changes one user may cause: three quarters."""
    return limit - limit // 4


def user_share_text(user: str, changes: int) -> str:
    """Return the reason for a user who has caused all changes of the share."""
    return f"{user} caused {changes} changes in the last hour: the next ones are reserved for other users"


def mismatch(node_state: SlurmNodeState, demand: JobDemand) -> str:
    """Return why a job cannot run on a node, regardless of its GPUs, or "" if it can."""
    node = node_state.node
    if node is None:
        return "Slurm does not have the node now"
    if demand.partitions and not set(demand.partitions) & set(node.partitions):
        return f"it is not in the job's partition {','.join(demand.partitions)}"
    if (demand.required and node_state.name not in demand.required) or node_state.name in demand.excluded:
        return "the job requests other nodes"
    if node_state.name in demand.reserved:
        return "a reservation of it begins before the job's time limit ends"
    missing = [f for f in demand.features if f not in node.features]
    if missing:
        return f"it lacks the feature {', '.join(missing)}, which the job requests"
    if demand.cpus > node.cpus or demand.memory_mib > node.memory_mib:
        needed = f"{demand.cpus} CPUs and {demand.memory_mib} MiB"
        return f"it is too small: it has {node.cpus} CPUs and {node.memory_mib} MiB, and the job needs {needed}"
    return ""
