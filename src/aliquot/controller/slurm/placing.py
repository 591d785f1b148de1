"""Keeps Slurm's placeholders true to what the records can be cut into."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from aliquot.controller.slurm import placeholders
from aliquot.controller.slurm.placeholders import REASON
from aliquot.controller.slurm.telling import Telling
from aliquot.controller.slurm.values import Record
from aliquot.integrations.slurm.port import Slurm
from aliquot.integrations.slurm.values import SlurmNode


class Placing:
    """Remembers what each record was in Slurm: one that is being registered anew counts as it was."""

    def __init__(self, slurm: Slurm, telling: Telling) -> None:
        self._slurm = slurm
        self._telling = telling
        self._last: dict[str, SlurmNode] = {}

    def hold(self, records: Iterable[Record], nodes: Iterable[SlurmNode], layouts: Mapping[str, object]) -> None:
        """Makes, drains and deletes what differs."""
        nodes, known = tuple(nodes), []
        for record in records:
            if record.node is not None:
                self._last[record.name] = record.node
            known.append(msgspec.structs.replace(record, node=self._last.get(record.name)))
        acts = placeholders.acts(nodes, placeholders.wanted(known, layouts))
        names = {n.name for n in nodes}
        for place in acts.create:
            if place.name in names:  # slurmctld was started anew, and forgot its types
                self._telling.tried(f"delete {place.name}", self._slurm.delete, place.name)
            else:
                self._telling.tell(place.name, f"jobs may wait for {place.gres_text}")
            if self._telling.tried(f"make {place.name}", self._slurm.create, place.line):
                self._telling.tried(f"drain {place.name}", self._slurm.drain, place.name, REASON)
        for name in acts.drain:
            self._telling.tried(f"drain {name}", self._slurm.drain, name, REASON)
        if all(r.cards or r.host.rules.untouched for r in known):
            # A node that says nothing may be what a placeholder stands for: none goes before all have spoken.
            self.withdraw(tuple(name for name in acts.delete if name not in {p.name for p in acts.create}))

    def withdraw(self, names: Iterable[str]) -> None:
        """Deletes placeholders."""
        for name in names:
            self._telling.tried(f"delete {name}", self._slurm.delete, name)
