"""Keeps Slurm's placeholder nodes in line with the layouts that the managed nodes support."""

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
"""The pause after which a placeholder that Slurm refused is tried again."""


class PlaceholderSync:
    """The synchronization of placeholders.

    It remembers the last record of each node, because a node that is being registered again is missing in Slurm.
    """

    def __init__(self, slurm: Slurm, log_once: LogOnce) -> None:
        self._slurm = slurm
        self._log_once = log_once
        self._last: dict[str, SlurmNode] = {}
        self._refused: dict[str, tuple[float, int]] = {}
        """By name, when the next try is due, and the number of consecutive failures."""

    def sync(
        self,
        node_states: Iterable[SlurmNodeState],
        nodes: Iterable[SlurmNode],
        layouts: Mapping[str, object],
        now: float,
    ) -> None:
        """Create, drain and delete placeholders as needed."""
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
            if placeholder.name in names:  # slurmctld was restarted, and lost its types
                self._log_once.attempt(f"delete {placeholder.name}", self._slurm.delete, placeholder.name)
            if self._log_once.attempt(f"create {placeholder.name}", self._slurm.create, placeholder.line):
                self._log_once.report(placeholder.name, f"jobs may wait for {placeholder.gres_text}")
                self._log_once.attempt(f"drain {placeholder.name}", self._slurm.drain, placeholder.name, REASON)
            else:
                failures = self._refused.get(placeholder.name, (0.0, 0))[1] + 1
                self._refused[placeholder.name] = now + BACKOFF.pause(failures), failures
        for name in actions.drain:
            self._log_once.attempt(f"drain {name}", self._slurm.drain, name, REASON)
        if all(r.gpus or r.host.rules.untouched for r in known):
            # A node that does not answer may need a placeholder: delete none until all nodes have answered.
            self.withdraw(tuple(name for name in actions.delete if name not in {p.name for p in actions.create}))

    def withdraw(self, names: Iterable[str]) -> None:
        """Delete placeholders."""
        for name in names:
            self._log_once.attempt(f"delete {name}", self._slurm.delete, name)
