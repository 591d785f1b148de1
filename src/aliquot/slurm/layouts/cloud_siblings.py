"""Sibling CLOUD records: one node name for each layout of a host, of which exactly one may be open (not drained).

Siblings have the same GPUs. If two of them are open, jobs released in one scheduling cycle start both, and each waits
for the other to end, a deadlock that Slurm cannot detect. So one is open, and we drain the others. A swap drains the
open one, lets its jobs end, powers it down, and only then opens the other. Power saving then only starts and stops what
is open. Powering down removes the drain (22.05 and 24.11), so the record is drained again while it powers down, before
the other is opened.

``next_action`` decides one action at a time from Slurm's current state, so a kill between two actions does no harm.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from aliquot.slurm.client.models import SlurmNode
from aliquot.slurm.conf.hosts import expand_leniently
from aliquot.slurm.conf.nodes import node_lines
from aliquot.slurm.conf.statements import Conf

OURS = "aliquot: "
"""The beginning of every reason that Aliquot sets. A record that was drained for another reason stays drained."""
FAILED = f"{OURS}cannot start"
"""The beginning of the reason of a record that its host could not start: an operator must check it before a retry."""
_DOWN = frozenset({"POWERED_DOWN"})
_POWERING_DOWN = frozenset({"POWERING_DOWN", "POWER_DOWN"})


class SiblingAction(msgspec.Struct, frozen=True):
    """The next action for a host's records."""

    verb: str
    """One of ``drain`` (with ``reason``), ``power-down``, ``open`` (resume), ``wait`` (until something else
    ends), ``done`` (only the wanted record is open), and ``blocked`` (an administrator has drained a record).
    """
    node_name: str = ""
    why: str = ""

    @property
    def reason(self) -> str:
        """The reason as Slurm shows it: that of a drain is marked as Aliquot's."""
        return f"{OURS}{self.why}" if self.verb == "drain" else self.why


def is_open(node: SlurmNode) -> bool:
    """Report whether Slurm may start jobs on a record."""
    return not node.draining


def drained_by_us(node: SlurmNode) -> bool:
    """Report whether we drained a record, so that we may open it."""
    return node.draining and node.reason.startswith(OURS)


def is_powered_off(node: SlurmNode) -> bool:
    """Report whether a record is powered down, and is not powering up or down."""
    return bool(node.states & _DOWN) and not node.states & (_POWERING_DOWN | {"POWERING_UP", "POWER_UP"})


def groups(nodes: Iterable[SlurmNode], hosts: Mapping[str, str]) -> dict[str, tuple[SlurmNode, ...]]:
    """Return the siblings of each host that has more than one record.

    ``hosts`` maps each record to its host, from slurm.conf or a file of siblings. It cannot come from slurmctld: for a
    powered-down record, 22.05 shows the record's own name as NodeHostName.
    """
    found: dict[str, list[SlurmNode]] = {}
    for node in nodes:
        host = hosts.get(node.name, "")
        if host:
            found.setdefault(host, []).append(node)
    return {host: tuple(each) for host, each in sorted(found.items()) if len(each) > 1}


def hosts_of(found: Conf) -> dict[str, str]:
    """Return the host of each CLOUD record in slurm.conf, its NodeHostname. In lists, each record has its own host."""
    hosts: dict[str, str] = {}
    for line in node_lines(found):
        names = expand_leniently(line.get("NodeHostname"))
        if line.get("State").upper() == "CLOUD" and names:
            hosts |= dict(
                zip(line.names, names if len(names) == len(line.names) else names * len(line.names), strict=False)
            )
    return hosts


def breaches(siblings: Mapping[str, Sequence[SlurmNode]]) -> dict[str, tuple[str, ...]]:
    """Return the hosts that have more than one open record, with these records."""
    opened = {host: tuple(n.name for n in nodes if is_open(n)) for host, nodes in siblings.items()}
    return {host: names for host, names in opened.items() if len(names) > 1}


def next_action(siblings: Sequence[SlurmNode], wanted: str, busy: Collection[str]) -> SiblingAction:
    """Return the next action so that only ``wanted`` is open among one host's records.

    ``busy`` are the records on which jobs have resources. Call it again with fresh records after each action, and while
    it returns ``wait``.
    """
    foreign = next((n for n in siblings if n.draining and not drained_by_us(n)), None)
    if foreign is not None:
        return SiblingAction(
            "blocked",
            foreign.name,
            f"another user or program drained {foreign.name} ({foreign.reason or 'no reason'})",
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
        # Another record is still up. If the wanted one is off, close it again, so that both are never up.
        if stop is not None:
            return SiblingAction("drain", wanted, stop.why) if is_powered_off(keeper) else stop
        if keeper.states & _POWERING_DOWN:
            return SiblingAction("wait", wanted, f"{wanted} is powering down")
        return SiblingAction("open" if "DOWN" in keeper.states else "done", wanted)
    # Drain all others before the one with the highest precedence, so that two are not open longer than needed.
    last = next((n for n in opened if n is not keeper), keeper)
    heir = wanted if last is keeper else keeper.name
    return SiblingAction("drain", last.name, f"{heir} uses its GPUs")


def _may_retry(node: SlurmNode) -> bool:
    """Report whether we set a record DOWN because its sibling had the GPUs, so that it may be tried again."""
    return node.reason.startswith(OURS) and not node.reason.startswith(FAILED)


def _closed(siblings: Sequence[SlurmNode], wanted: str, busy: Collection[str]) -> SiblingAction:
    """Return the next action while no record is open: stop the others, then open the wanted one."""
    stops = [action for n in siblings if (n.name != wanted or _stuck(n)) and (action := _stop(n, busy))]
    return next(
        (action for action in stops if action.verb != "wait"), stops[0] if stops else SiblingAction("open", wanted)
    )


def _stuck(node: SlurmNode) -> bool:
    """Report whether a record is powering up or down.

    If its job was removed while it powers up, Slurm waits for its slurmd, but does not request its start.
    """
    return bool(node.states & {"POWERING_UP", "POWER_UP"} | node.states & _POWERING_DOWN)


def best_open(opened: Sequence[SlurmNode], wanted: str, busy: Collection[str]) -> SlurmNode | None:
    """Return the open record with the highest precedence, or None if none is open.

    Records with jobs come first, then those that are not DOWN, those that are up, the wanted one, and the first by
    name.
    """
    return min(
        opened,
        key=lambda n: (n.name not in busy, "DOWN" in n.states, is_powered_off(n), n.name != wanted, n.name),
        default=None,
    )


def _stop(node: SlurmNode, busy: Collection[str]) -> SiblingAction | None:
    """Return the next action to stop a record, or None if it is stopped."""
    if node.name in busy:
        return SiblingAction("wait", node.name, f"jobs are on {node.name}")
    if is_powered_off(node):
        return None
    if node.states & _POWERING_DOWN:
        return SiblingAction("wait", node.name, f"{node.name} is powering down")
    return SiblingAction("power-down", node.name, f"{node.name} has no jobs and makes way for another record")


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
