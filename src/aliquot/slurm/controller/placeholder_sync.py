"""Keeps Slurm's placeholders true to what the records can be cut into."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from aliquot.foundation.backoff import Backoff
from aliquot.slurm.client.models import SlurmNode
from aliquot.slurm.client.port import Slurm
from aliquot.slurm.controller import placeholders
from aliquot.slurm.controller.log_once import Telling
from aliquot.slurm.controller.models import Record
from aliquot.slurm.controller.placeholders import REASON

BACKOFF = Backoff(first=5.0, longest=300.0)
"""What Slurm refused to make is tried again after this long, and after twice as long each time."""


class Placing:
    """Remembers what each record was in Slurm: one that is being registered anew counts as it was."""

    def __init__(self, slurm: Slurm, telling: Telling) -> None:
        self._slurm = slurm
        self._telling = telling
        self._last: dict[str, SlurmNode] = {}
        self._refused: dict[str, tuple[float, int]] = {}
        """By name: until when it is not tried again, and how often it failed in a row."""

    def hold(
        self, records: Iterable[Record], nodes: Iterable[SlurmNode], layouts: Mapping[str, object], now: float
    ) -> None:
        """Makes, drains and deletes what differs."""
        nodes, known = tuple(nodes), []
        for record in records:
            if record.node is not None:
                self._last[record.name] = record.node
            known.append(msgspec.structs.replace(record, node=self._last.get(record.name)))
        acts = placeholders.acts(nodes, placeholders.wanted(known, layouts))
        names = {n.name for n in nodes}
        self._refused = {p.name: self._refused[p.name] for p in acts.create if p.name in self._refused}
        for place in acts.create:
            if self._refused.get(place.name, (now, 0))[0] > now:
                continue
            if place.name in names:  # slurmctld was started anew, and forgot its types
                self._telling.tried(f"delete {place.name}", self._slurm.delete, place.name)
            if self._telling.tried(f"make {place.name}", self._slurm.create, place.line):
                self._telling.tell(place.name, f"jobs may wait for {place.gres_text}")
                self._telling.tried(f"drain {place.name}", self._slurm.drain, place.name, REASON)
            else:
                failures = self._refused.get(place.name, (0.0, 0))[1] + 1
                self._refused[place.name] = now + BACKOFF.pause(failures), failures
        for name in acts.drain:
            self._telling.tried(f"drain {name}", self._slurm.drain, name, REASON)
        if all(r.cards or r.host.rules.untouched for r in known):
            # A node that says nothing may be what a placeholder stands for: none goes before all have spoken.
            self.withdraw(tuple(name for name in acts.delete if name not in {p.name for p in acts.create}))

    def withdraw(self, names: Iterable[str]) -> None:
        """Deletes placeholders."""
        for name in names:
            self._telling.tried(f"delete {name}", self._slurm.delete, name)
