"""Carries out what is decided about CLOUD records: one act of each host per round, from what Slurm says then."""

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
    """Every host's records, with what the history knows of it."""
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
    """CLOUD records as jobs see them: only the one that is to be open has slices to give."""
    return [
        SlurmNodeState(
            host=ManagedNode(node.name),
            node=node,
            names={g.type: g.type.rpartition("_")[2] for g in node.gres if g.name == "gpu"},
            shut="" if node.name == siblings.target else f"{siblings.target} is the layout of {siblings.host} now",
            jobs=busy.get(node.name, 0),
            cloud=True,
        )
        for siblings in sibling_groups
        for node in siblings.nodes
    ]


def apply_actions(sibling_groups: Iterable[SiblingGroup], slurm: Slurm, log_once: LogOnce) -> None:
    """The next act of each host whose records are not as they should be."""
    for siblings in sibling_groups:
        step = siblings.action
        log_once.report(siblings.host, f"{step.verb} {step.node_name}: {step.why}" if step.why else "")
        log_once.attempt(f"{step.verb} {step.node_name}", _unless_held, slurm, step)


def _unless_held(slurm: Slurm, step: SiblingAction) -> None:
    """What was decided a moment ago is done, unless somebody else has drained the record since."""
    if step.verb in ("open", "drain"):
        node = slurm.node(step.node_name)
        if node.draining and not drained_by_us(node):
            return
    apply_action(slurm, step)
