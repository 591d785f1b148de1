"""CLOUD records: one node name in Slurm for each layout of a host, of which exactly one may be open (not drained).

Siblings have the same GPUs. Where two of them are open, jobs released in one scheduling cycle start both, and each
waits for the other to end: a deadlock that Slurm cannot see. So one is open and the others are drained by us; a swap
drains the open one, lets its jobs end, powers it down, and only then opens the other. Power saving then merely starts
and stops what is open. Powering down takes the drain away (22.05 and 24.11 alike): the record is drained again while
it goes, before the other is opened.

``next_action`` decides one act at a time from what Slurm says now, so that a kill between any two acts costs nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from aliquot.slurm.client.models import SlurmNode
from aliquot.slurm.conf.hosts import expand_leniently
from aliquot.slurm.conf.nodes import node_lines
from aliquot.slurm.conf.statements import Conf

OURS = "aliquot: "
"""What reasons that we set begin with. Whoever drained a record with another reason keeps it drained."""
FAILED = f"{OURS}cannot start"
"""How the reason of a record begins that its host could not start: a person has to look before it is tried again."""
_DOWN = frozenset({"POWERED_DOWN"})
_POWERING_DOWN = frozenset({"POWERING_DOWN", "POWER_DOWN"})


class SiblingAction(msgspec.Struct, frozen=True):
    """The next thing to do to a host's records. ``verb``: ``drain`` (with ``why`` as the reason), ``power-down``,
    ``open`` (resume), ``wait`` (nothing can be done before something else ends), ``done`` (the wanted one is open, the
    others are not), ``blocked`` (an administrator's hand is on a record: nothing is done).
    """

    verb: str
    node_name: str = ""
    why: str = ""


def is_open(node: SlurmNode) -> bool:
    """Whether Slurm may give jobs to a record."""
    return not node.draining


def drained_by_us(node: SlurmNode) -> bool:
    """Drained by us, so that we may open it."""
    return node.draining and node.reason.startswith(OURS)


def is_powered_off(node: SlurmNode) -> bool:
    """No slurmd stands for it: powered down, and not on the way to there or back."""
    return bool(node.states & _DOWN) and not node.states & (_POWERING_DOWN | {"POWERING_UP", "POWER_UP"})


def groups(nodes: Iterable[SlurmNode], hosts: Mapping[str, str]) -> dict[str, tuple[SlurmNode, ...]]:
    """The siblings of each host that has more than one record. ``hosts`` is the host of each record, as slurm.conf or
    a file of siblings says it: what slurmctld shows as NodeHostName is a powered-down record's own name (22.05).
    """
    found: dict[str, list[SlurmNode]] = {}
    for node in nodes:
        host = hosts.get(node.name, "")
        if host:
            found.setdefault(host, []).append(node)
    return {host: tuple(each) for host, each in sorted(found.items()) if len(each) > 1}


def hosts_of(found: Conf) -> dict[str, str]:
    """The host of each CLOUD record in a slurm.conf: its NodeHostname. Of a list of hosts each record has its own."""
    hosts: dict[str, str] = {}
    for line in node_lines(found):
        names = expand_leniently(line.get("NodeHostname"))
        if line.get("State").upper() == "CLOUD" and names:
            hosts |= dict(
                zip(line.names, names if len(names) == len(line.names) else names * len(line.names), strict=False)
            )
    return hosts


def breaches(siblings: Mapping[str, Sequence[SlurmNode]]) -> dict[str, tuple[str, ...]]:
    """Hosts with more than one open record, and which those are."""
    opened = {host: tuple(n.name for n in nodes if is_open(n)) for host, nodes in siblings.items()}
    return {host: names for host, names in opened.items() if len(names) > 1}


def next_action(siblings: Sequence[SlurmNode], wanted: str, busy: Collection[str]) -> SiblingAction:
    """What to do next so that of one host's records ``wanted`` is open and no other is. ``busy`` are the records that
    jobs have resources on. Call it again, with a fresh look, after each act and while it says ``wait``.
    """
    foreign = next((n for n in siblings if n.draining and not drained_by_us(n)), None)
    if foreign is not None:
        return SiblingAction(
            "blocked", foreign.name, f"{foreign.name} was drained by somebody else ({foreign.reason or 'no reason'})"
        )
    down = next((n for n in siblings if n.name == wanted and "DOWN" in n.states and not _may_retry(n)), None)
    if down is not None:
        return SiblingAction("blocked", down.name, f"{down.name} is DOWN ({down.reason or 'no reason'})")
    opened = [n for n in siblings if is_open(n)]
    keeper = best_open(opened, wanted, busy)
    if keeper is None:
        return _closed(siblings, wanted, busy)
    stop = next((action for n in siblings if not is_open(n) and (action := _stop(n, busy))), None)
    if len(opened) == 1 and keeper.name == wanted:
        # Another is up still. Where the wanted one is not, it must not start beside it: it is closed again.
        if stop is not None:
            return SiblingAction("drain", wanted, f"{OURS}{stop.why}") if is_powered_off(keeper) else stop
        if keeper.states & _POWERING_DOWN:
            return SiblingAction("wait", wanted, f"{wanted} powers down")
        return SiblingAction("open" if "DOWN" in keeper.states else "done", wanted)
    # Every other one goes before the one with the best right to the GPUs: two are never open for longer than needed.
    last = next((n for n in opened if n is not keeper), keeper)
    heir = wanted if last is keeper else keeper.name
    return SiblingAction("drain", last.name, f"{OURS}its GPUs are {heir}'s")


def _may_retry(node: SlurmNode) -> bool:
    """Set down by us because its sibling had the GPUs: it may be tried again."""
    return node.reason.startswith(OURS) and not node.reason.startswith(FAILED)


def _closed(siblings: Sequence[SlurmNode], wanted: str, busy: Collection[str]) -> SiblingAction:
    """No record is open: the wanted one may be, once no other stands for the GPUs."""
    stops = [action for n in siblings if (n.name != wanted or _stuck(n)) and (action := _stop(n, busy))]
    return next(
        (action for action in stops if action.verb != "wait"), stops[0] if stops else SiblingAction("open", wanted)
    )


def _stuck(node: SlurmNode) -> bool:
    """On the way up for a job that was taken from it since: Slurm would wait for its slurmd, and ask nobody for it."""
    return bool(node.states & {"POWERING_UP", "POWER_UP"} | node.states & _POWERING_DOWN)


def best_open(opened: Sequence[SlurmNode], wanted: str, busy: Collection[str]) -> SlurmNode | None:
    """Which of several open records has the best right to the host: one with jobs, one that is not DOWN, one that
    is up, the wanted one, the first by name. None of none.
    """
    return min(
        opened,
        key=lambda n: (n.name not in busy, "DOWN" in n.states, is_powered_off(n), n.name != wanted, n.name),
        default=None,
    )


def _stop(node: SlurmNode, busy: Collection[str]) -> SiblingAction | None:
    """What a record that gives way still needs; None where it stands for nothing any more."""
    if node.name in busy:
        return SiblingAction("wait", node.name, f"jobs are on {node.name}")
    if is_powered_off(node):
        return None
    if node.states & _POWERING_DOWN:
        return SiblingAction("wait", node.name, f"{node.name} powers down")
    return SiblingAction("power-down", node.name, f"{node.name} has no jobs and gives way")


__all__ = [
    "FAILED",
    "OURS",
    "SiblingAction",
    "best_open",
    "breaches",
    "drained_by_us",
    "groups",
    "hosts_of",
    "is_open",
    "is_powered_off",
    "next_action",
]
