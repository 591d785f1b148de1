"""What the cluster's definitions of Harvester's kinds drop of a status.

pcidevices writes its own definitions at each of its starts, over ours: then the API server takes a status and drops
what they do not have (conditions, for instance), without a word. Written again at each look, that would never end.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from aliquot.foundation.logfmt import agent_log as log
from aliquot.kubernetes.client.object_base import KubeObject
from aliquot.kubernetes.virtual_machines.harvester.node_view import ObjectChange
from aliquot.kubernetes.virtual_machines.harvester.object_draft import plain

RETRY_S = 60.0
"""How often it is tried whether the definitions are ours again."""


class PrunedFields:
    """What each kind lost, learned from the answers to writes. ``clock`` counts seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._fields: dict[str, frozenset[str]] = {}
        self._retry_at: dict[str, float] = {}

    def without_pruned(self, change: ObjectChange) -> ObjectChange | None:
        """The change without what would be dropped; None where nothing is left of it. Now and then it goes whole."""
        lost = self._fields.get(change.kind)
        if change.verb != "status" or not lost or self._clock() >= self._retry_at[change.kind]:
            return change
        status = {name: value for name, value in change.body["status"].items() if name not in lost}
        return msgspec.structs.replace(change, body={"status": status}) if status else None

    def learn(self, change: ObjectChange, written: KubeObject) -> None:
        """What became of a status."""
        kind, stored = change.kind, plain(getattr(written, "status", None)) or {}
        sent = {name for name, value in change.body["status"].items() if _sets_anything(value)}
        lost, previous = frozenset(sent - stored.keys()), self._fields.get(kind, frozenset())
        if lost:
            self._fields[kind] = previous | lost
            self._retry_at[kind] = self._clock() + RETRY_S
            if not previous:
                log.error("%s", self.error)
        elif previous & sent:
            del self._fields[kind], self._retry_at[kind]
            log.info("the cluster's definition of %s has everything again", kind)

    @property
    def error(self) -> str:
        """What is dropped, and what to do; "" where nothing is."""
        if not self._fields:
            return ""
        kinds, fields = ", ".join(sorted(self._fields)), ", ".join(sorted(frozenset().union(*self._fields.values())))
        text = f"the cluster's definitions of {kinds} are not ours, and drop {fields}: statuses are incomplete"
        return f"{text} | next: kubectl apply --server-side --force-conflicts -f deploy/crds"


def _sets_anything(value: object) -> bool:
    """Whether a patch sets anything there: what is empty is left out of what the server answers."""
    return any(map(_sets_anything, value.values())) if isinstance(value, dict) else bool(value)
