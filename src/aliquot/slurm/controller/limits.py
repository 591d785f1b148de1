"""Why a record is not cut now, whatever else is chosen; "" where nothing speaks against it."""

from __future__ import annotations

from collections.abc import Mapping

from aliquot.slurm.controller.job_demand import Want
from aliquot.slurm.controller.models import MARK, Record


def state(record: Record) -> str:
    """What it is, and what is on it."""
    node = record.node
    if record.host.rules.untouched:
        return "it is to be left untouched (settings)"
    if record.shut or node is None:
        return record.shut or "Slurm has no such node now"
    if not node.answers:
        return f"it is {'+'.join(sorted(node.states))} in Slurm ({node.reason or 'no reason given'})"
    if node.draining and not node.reason.startswith(MARK):
        return f"it was drained by somebody else ({node.reason or 'no reason given'})"
    if not record.cards:
        return "it has no GPU that can be cut"
    if record.jobs:
        return f"{record.jobs} {'job has' if record.jobs == 1 else 'jobs have'} resources on it"
    return ""


def limits(record: Record, now: float) -> str:
    """How soon after its last change, its last failure, its last job."""
    bound = record.host.limits
    if now < record.retry_at:
        return f"the last change failed ({record.failure}); tried again in {record.retry_at - now:.0f} s"
    idle = now - record.idle_since
    if idle < bound.idle_s and not record.waiting:
        return f"idle for {idle:.0f} s only, {bound.idle_s:.0f} s are asked (idle)"
    since = now - record.last_cut
    if since < bound.between_s:
        return f"cut {since:.0f} s ago, {bound.between_s:.0f} s lie between two changes (between)"
    if record.recent >= bound.per_hour:
        return f"cut {record.recent} times in the last hour, at most {bound.per_hour} (changes-per-hour)"
    return ""


def promise(name: str, promised: Mapping[str, Want], want: Want) -> str:
    """Why a job may not have promised slices cut; "" if nothing is promised, or to a job behind it."""
    first = promised.get(name)
    if first is None or (want.rank < first.rank and not want.follows):
        return ""
    return f"its free slices are promised to job {first.job}"


def share(limit: int) -> int:
    """How many of an hour's changes one user may cause."""
    return limit - limit // 4
