"""Hosts with one CLOUD record per layout: the choice of the record that should be open, and for which jobs. Pure.

A host's open record is swapped for another one if it has no jobs, is about to get none, and the limits allow it.
``layouts.cloud_siblings`` defines the steps of a swap; power saving does the rest.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from aliquot.slurm.client.models import SlurmNode
from aliquot.slurm.controller.job_demand import JobDemand
from aliquot.slurm.controller.settings import Limits, Siblings
from aliquot.slurm.layouts.cloud_siblings import SiblingAction, best_open, is_open, next_action


class SiblingGroup(msgspec.Struct, frozen=True):
    """A host and its records in Slurm."""

    host: str
    nodes: tuple[SlurmNode, ...]
    limits: Limits
    target: str
    """The record that should be open."""
    action: SiblingAction
    """The next action to open the target."""
    jobs: int = 0
    """The number of jobs on all its records."""
    idle_since: float = 0.0
    last: float = 0.0
    recent: int = 0
    untouched: bool = False


class SiblingSwap(msgspec.Struct, frozen=True):
    """The choice of another record of a host, for some jobs."""

    host: str
    node_name: str
    jobs: tuple[int, ...] = ()
    user: str = ""


def group(
    siblings: Siblings, nodes: Mapping[str, SlurmNode], busy: Mapping[str, int], target: str
) -> SiblingGroup | None:
    """Return the group of a host's records, or None if Slurm has none of them.

    If ``target`` is not one of them, the open record with the highest precedence becomes the target.
    """
    found = tuple(nodes[name] for name in siblings.nodes if name in nodes)
    if not found:
        return None
    names = {n.name for n in found}
    busy_nodes = {name for name in names if busy.get(name)}
    if target not in names:
        best = best_open([n for n in found if is_open(n)], "", busy_nodes)
        target = (best or found[0]).name
    return SiblingGroup(
        host=siblings.host,
        nodes=found,
        limits=siblings.limits,
        target=target,
        action=next_action(found, target, busy_nodes),
        jobs=sum(busy.get(name, 0) for name in names),
        untouched=siblings.untouched,
    )


def blocker(group: SiblingGroup, promised: Collection[str], now: float) -> str:
    """Return why no other record of a host is opened now, or "" if one may be."""
    limits = group.limits
    if group.untouched:
        return "the settings leave it untouched (untouched: true)"
    if group.action.verb == "blocked":
        return group.action.why
    if group.action.verb != "done":
        return f"{group.target} is being opened there"
    if group.jobs:
        return f"{group.jobs} {'job has' if group.jobs == 1 else 'jobs have'} resources on {group.target}"
    if group.target in promised:
        return f"the free devices of {group.target} are promised to another job"
    if now - group.idle_since < limits.idle_s:
        return f"idle for only {now - group.idle_since:.0f} s of {limits.idle_s:.0f} s (idle)"
    if now - group.last < limits.between_s:
        return f"swapped {now - group.last:.0f} s ago, at least {limits.between_s:.0f} s must pass (between)"
    if group.recent >= limits.per_hour:
        return f"swapped {group.recent} times in the last hour, at most {limits.per_hour} (changes-per-hour)"
    return ""


def offers(node: SlurmNode, demand: JobDemand) -> bool:
    """Report whether a record has the devices that a job needs, if it is open."""
    if demand.layouts and not set(demand.layouts) & set(node.features):
        return False
    return all(node.count(kind) >= n for kind, n in demand.need.items())


def opening_node(groups: Sequence[SiblingGroup], demand: JobDemand) -> str:
    """Return the record that is being opened and will suit a job, or ""."""
    for each in groups:
        if each.action.verb not in ("done", "blocked"):
            target = next((n for n in each.nodes if n.name == each.target), None)
            if target is not None and offers(target, demand):
                return each.target
    return ""
