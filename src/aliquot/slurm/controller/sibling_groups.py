"""Hosts with one CLOUD record per layout: which of them should be open, for which jobs. Pure.

A host's open record is left for another where no job is on it, none is about to be, and the limits allow it. How the
swap goes, act by act, is ``layouts.cloud_siblings``' to say; power saving does the rest.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from aliquot.slurm.client.models import SlurmNode
from aliquot.slurm.controller.job_demand import JobDemand
from aliquot.slurm.controller.settings import Limits, Siblings
from aliquot.slurm.layouts.cloud_siblings import SiblingAction, best_open, is_open, next_action


class SiblingGroup(msgspec.Struct, frozen=True):
    """One host and its records as Slurm has them. ``target`` is the record that is to be open, ``action`` the next
    thing to do for that. ``jobs`` are on any of its records.
    """

    host: str
    nodes: tuple[SlurmNode, ...]
    limits: Limits
    target: str
    action: SiblingAction
    jobs: int = 0
    idle_since: float = 0.0
    last: float = 0.0
    recent: int = 0
    untouched: bool = False


class SiblingSwap(msgspec.Struct, frozen=True):
    """Of a host another record is to be open from now on, for a job."""

    host: str
    node_name: str
    jobs: tuple[int, ...] = ()
    user: str = ""


def group(
    siblings: Siblings, nodes: Mapping[str, SlurmNode], busy: Mapping[str, int], target: str
) -> SiblingGroup | None:
    """A host's records now. Without a ``target`` it is the one with the best right to be open. None where Slurm has
    none of them.
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
    """Why another record of a host is not opened now; "" if one may be."""
    limits = group.limits
    if group.untouched:
        return "it is to be left untouched (settings)"
    if group.action.verb == "blocked":
        return group.action.why
    if group.action.verb != "done":
        return f"{group.target} is being opened there"
    if group.jobs:
        return f"{group.jobs} {'job has' if group.jobs == 1 else 'jobs have'} resources on {group.target}"
    if group.target in promised:
        return f"the free slices of {group.target} are promised to another job"
    if now - group.idle_since < limits.idle_s:
        return f"idle for {now - group.idle_since:.0f} s only, {limits.idle_s:.0f} s are asked (idle)"
    if now - group.last < limits.between_s:
        return f"swapped {now - group.last:.0f} s ago, {limits.between_s:.0f} s lie between two changes (between)"
    if group.recent >= limits.per_hour:
        return f"swapped {group.recent} times in the last hour, at most {limits.per_hour} (changes-per-hour)"
    return ""


def offers(node: SlurmNode, demand: JobDemand) -> bool:
    """Whether a record, when it is open, has what a job needs."""
    if demand.layouts and not set(demand.layouts) & set(node.features):
        return False
    return all(node.count(kind) >= n for kind, n in demand.need.items())


def opening_node(groups: Sequence[SiblingGroup], demand: JobDemand) -> str:
    """The record that is being opened and will suit a job; "" if there is none."""
    for each in groups:
        if each.action.verb not in ("done", "blocked"):
            target = next((n for n in each.nodes if n.name == each.target), None)
            if target is not None and offers(target, demand):
                return each.target
    return ""
