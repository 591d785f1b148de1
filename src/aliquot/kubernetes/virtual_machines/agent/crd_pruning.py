"""Detection of status fields that the cluster's CRDs of Harvester's kinds drop.

pcidevices writes its own CRDs over ours at each start. The API server then accepts a status, but silently drops the
fields that those CRDs lack, such as conditions. Writing these fields in each round would never end.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from aliquot.errors import Message
from aliquot.foundation.logfmt import agent_log as log
from aliquot.kubernetes.client.object_base import KubeObject
from aliquot.kubernetes.virtual_machines.harvester.node_view import ObjectChange
from aliquot.kubernetes.virtual_machines.harvester.object_draft import plain

RETRY_S = 60.0
"""How often a full status is written to learn whether our CRDs are back, in seconds."""


class PrunedFields:
    """The fields that each kind loses, learned from the responses to writes. ``clock`` counts seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._fields: dict[str, frozenset[str]] = {}
        self._retry_at: dict[str, float] = {}

    def without_pruned(self, change: ObjectChange) -> ObjectChange | None:
        """Return the change without fields that would be dropped; None if nothing is left of it.

        Every ``RETRY_S`` seconds, return the whole change.
        """
        lost = self._fields.get(change.kind)
        if change.verb != "status" or not lost or self._clock() >= self._retry_at[change.kind]:
            return change
        status = {name: value for name, value in change.body["status"].items() if name not in lost}
        return msgspec.structs.replace(change, body={"status": status}) if status else None

    def learn(self, change: ObjectChange, written: KubeObject) -> None:
        """Record which fields the API server dropped, from the response to a status write."""
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
            log.info("the CRD of %s in the cluster is complete again", kind)

    @property
    def error(self) -> str:
        """The dropped fields and the next step; "" if no field is dropped."""
        if not self._fields:
            return ""
        kinds, fields = ", ".join(sorted(self._fields)), ", ".join(sorted(frozenset().union(*self._fields.values())))
        text = f"the CRDs of {kinds} in the cluster are not Aliquot's and drop {fields}: statuses are incomplete"
        return str(Message(text, "kubectl apply --server-side --force-conflicts -f deploy/crds"))


def _sets_anything(value: object) -> bool:
    """Report whether a patch sets a value: the server omits empty values from its response."""
    return any(map(_sets_anything, value.values())) if isinstance(value, dict) else bool(value)
