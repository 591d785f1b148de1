"""Keeps Slurm's placeholders true to what the records can be cut into."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from aliquot.foundation.backoff import Backoff
from aliquot.slurm.client.models import SlurmNode
from aliquot.slurm.client.port import Slurm
from aliquot.slurm.controller import placeholders
from aliquot.slurm.controller.log_once import LogOnce
from aliquot.slurm.controller.models import SlurmNodeState
from aliquot.slurm.controller.placeholders import REASON

BACKOFF = Backoff(first=5.0, longest=300.0)
"""What Slurm refused to make is tried again after this long, and after twice as long each time."""


class PlaceholderSync:
    """Remembers what each record was in Slurm: one that is being registered anew counts as it was."""

    def __init__(self, slurm: Slurm, log_once: LogOnce) -> None:
        self._slurm = slurm
        self._log_once = log_once
        self._last: dict[str, SlurmNode] = {}
        self._refused: dict[str, tuple[float, int]] = {}
        """By name: until when it is not tried again, and how often it failed in a row."""

    def sync(
        self,
        node_states: Iterable[SlurmNodeState],
        nodes: Iterable[SlurmNode],
        layouts: Mapping[str, object],
        now: float,
    ) -> None:
        """Makes, drains and deletes what differs."""
        nodes, known = tuple(nodes), []
        for node_state in node_states:
            if node_state.node is not None:
                self._last[node_state.name] = node_state.node
            known.append(msgspec.structs.replace(node_state, node=self._last.get(node_state.name)))
        actions = placeholders.plan_actions(nodes, placeholders.required_placeholders(known, layouts))
        names = {n.name for n in nodes}
        self._refused = {p.name: self._refused[p.name] for p in actions.create if p.name in self._refused}
        for placeholder in actions.create:
            if self._refused.get(placeholder.name, (now, 0))[0] > now:
                continue
            if placeholder.name in names:  # slurmctld was started anew, and forgot its types
                self._log_once.attempt(f"delete {placeholder.name}", self._slurm.delete, placeholder.name)
            if self._log_once.attempt(f"make {placeholder.name}", self._slurm.create, placeholder.line):
                self._log_once.report(placeholder.name, f"jobs may wait for {placeholder.gres_text}")
                self._log_once.attempt(f"drain {placeholder.name}", self._slurm.drain, placeholder.name, REASON)
            else:
                failures = self._refused.get(placeholder.name, (0.0, 0))[1] + 1
                self._refused[placeholder.name] = now + BACKOFF.pause(failures), failures
        for name in actions.drain:
            self._log_once.attempt(f"drain {name}", self._slurm.drain, name, REASON)
        if all(r.gpus or r.host.rules.untouched for r in known):
            # A node that says nothing may be what a placeholder stands for: none goes before all have spoken.
            self.withdraw(tuple(name for name in actions.delete if name not in {p.name for p in actions.create}))

    def withdraw(self, names: Iterable[str]) -> None:
        """Deletes placeholders."""
        for name in names:
            self._log_once.attempt(f"delete {name}", self._slurm.delete, name)
