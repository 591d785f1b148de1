"""Carries out what is decided about CLOUD records: one act of each host per round, from what Slurm says then."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from aliquot.slurm.client.models import SlurmNode
from aliquot.slurm.client.port import Slurm
from aliquot.slurm.controller.cloud_records import Group, group
from aliquot.slurm.controller.history import History
from aliquot.slurm.controller.log_once import Telling
from aliquot.slurm.controller.models import Record
from aliquot.slurm.controller.settings import Host, Settings
from aliquot.slurm.controller.single_record_rule import carry_out
from aliquot.slurm.layouts.cloud_siblings import Act, ours


def groups(
    settings: Settings, nodes: Mapping[str, SlurmNode], busy: Mapping[str, int], history: History, now: float
) -> tuple[Group, ...]:
    """Every host's records, with what the history knows of it."""
    found = []
    for siblings in settings.siblings:
        made = group(siblings, nodes, busy, history.swaps.get(siblings.host, ""))
        if made is not None:
            known = {
                "idle_since": history.idle.get(siblings.host, now),
                "last": history.last(siblings.host),
                "recent": history.recent(now, siblings.host),
            }
            found.append(msgspec.structs.replace(made, **known))
    return tuple(found)


def records(made: Iterable[Group], busy: Mapping[str, int]) -> list[Record]:
    """CLOUD records as jobs see them: only the one that is to be open has slices to give."""
    return [
        Record(
            host=Host(node.name),
            node=node,
            names={g.type: g.type.rpartition("_")[2] for g in node.gres if g.name == "gpu"},
            shut="" if node.name == each.target else f"{each.target} is the layout of {each.host} now",
            jobs=busy.get(node.name, 0),
            cloud=True,
        )
        for each in made
        for node in each.nodes
    ]


def act(made: Iterable[Group], slurm: Slurm, telling: Telling) -> None:
    """The next act of each host whose records are not as they should be."""
    for each in made:
        step = each.act
        telling.tell(each.host, f"{step.verb} {step.record}: {step.why}" if step.why else "")
        telling.tried(f"{step.verb} {step.record}", _unless_held, slurm, step)


def _unless_held(slurm: Slurm, step: Act) -> None:
    """What was decided a moment ago is done, unless somebody else has drained the record since."""
    if step.verb in ("open", "drain"):
        node = slurm.node(step.record)
        if node.draining and not ours(node):
            return
    carry_out(slurm, step)
