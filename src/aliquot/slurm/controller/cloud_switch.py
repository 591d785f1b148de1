"""Applies decisions for CLOUD records: one action per host and round, based on Slurm's current state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from aliquot.slurm.client.models import SlurmNode
from aliquot.slurm.client.port import Slurm
from aliquot.slurm.controller.history import SlurmHistory
from aliquot.slurm.controller.log_once import LogOnce
from aliquot.slurm.controller.models import SlurmNodeState
from aliquot.slurm.controller.settings import ManagedNode, SlurmControllerSettings
from aliquot.slurm.controller.sibling_groups import SiblingGroup, group
from aliquot.slurm.controller.sibling_swap import apply_action
from aliquot.slurm.layouts.cloud_siblings import SiblingAction, drained_by_us


def groups(
    settings: SlurmControllerSettings,
    nodes: Mapping[str, SlurmNode],
    busy: Mapping[str, int],
    history: SlurmHistory,
    now: float,
) -> tuple[SiblingGroup, ...]:
    """Return the records of every host, together with the host's history."""
    found = []
    for siblings in settings.siblings:
        current = group(siblings, nodes, busy, history.swaps.get(siblings.host, ""))
        if current is not None:
            known = {
                "idle_since": history.idle.get(siblings.host, now),
                "last": history.last_change_time(siblings.host),
                "recent": history.recent(now, siblings.host),
            }
            found.append(msgspec.structs.replace(current, **known))
    return tuple(found)


def node_states(sibling_groups: Iterable[SiblingGroup], busy: Mapping[str, int]) -> list[SlurmNodeState]:
    """Return the CLOUD records as node states: only the target of a host has devices for jobs."""
    return [
        SlurmNodeState(
            host=ManagedNode(node.name),
            node=node,
            names={g.type: g.type.rpartition("_")[2] for g in node.gres if g.name == "gpu"},
            shut="" if node.name == siblings.target else f"the current layout of {siblings.host} is {siblings.target}",
            jobs=busy.get(node.name, 0),
            cloud=True,
        )
        for siblings in sibling_groups
        for node in siblings.nodes
    ]


def apply_actions(sibling_groups: Iterable[SiblingGroup], slurm: Slurm, log_once: LogOnce) -> None:
    """Apply the next action of each host whose records differ from the target."""
    for siblings in sibling_groups:
        step = siblings.action
        log_once.report(siblings.host, f"{step.verb} {step.node_name}: {step.reason}" if step.why else "")
        log_once.attempt(f"{step.verb} {step.node_name}", _unless_held, slurm, step)


def _unless_held(slurm: Slurm, step: SiblingAction) -> None:
    """Apply an action, unless someone else has drained the record since the decision."""
    if step.verb in ("open", "drain"):
        node = slurm.node(step.node_name)
        if node.draining and not drained_by_us(node):
            return
    apply_action(slurm, step)
