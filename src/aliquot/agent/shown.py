"""What one look of the agent comes to for those who look on."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from aliquot.agent.observation import Observation
from aliquot.agent.wish import Source
from aliquot.engine.history import Past
from aliquot.integrations.kubernetes import document as documents
from aliquot.integrations.kubernetes.document import Document, Text
from aliquot.model.inventory import Inventory
from aliquot.model.usage import Usage, coarse
from aliquot.planner.verify import verify
from aliquot.planner.watching import still


class Used(msgspec.Struct, frozen=True):
    """One look at what the pieces are used for: the GPUs as they were, and when that was (seconds of wall time)."""

    inventory: Inventory | None = None
    usage: tuple[Usage, ...] = ()
    at: float = 0.0

    def told(self, now: Inventory, pasts: Sequence[Past]) -> tuple[Usage, ...]:
        """Roughly, for an idle node must not be written anew, and of pieces that are the same ones still: ids come
        again, and a new instance is not idle since the old one was. ``pasts`` are the node's newest changes.
        """
        if self.inventory is None:
            return ()
        anew = {pci for past in pasts if past.ended >= self.at for pci in past.gpus}
        return coarse(still(self.usage, self.inventory, now, anew))


def of_look(
    o: Observation, sources: Sequence[Source], pod: str, used: Used, pasts: tuple[Past, ...]
) -> Document | None:
    """What a look of the agent comes to; None where the GPUs could not be read. ``used`` is the last look at use,
    ``pasts`` are the newest changes.
    """
    if o.inventory is None:
        return None
    desired = o.wish.desired if o.wish is not None else None
    return Document(
        inventory=msgspec.structs.replace(o.inventory, node=o.node),
        pod=pod,
        label=o.label or "",
        drift=verify(o.inventory, desired) if desired is not None else (),
        reserved=tuple(sorted(o.reserved)),
        strategy=o.settings.strategy,
        holders=o.holding.policy,
        manages=o.settings.manage,
        sources=tuple(_source(each) for each in sources),
        usage=used.told(o.inventory, pasts),
        pasts=pasts,
    )


def _source(source: Source) -> Text:
    """Of a file, which nobody else can read, its text."""
    if source.name.startswith("ConfigMap ") or source.text is None or len(source.text) > documents.MOST_SOURCE:
        return Text(source.name)
    return Text(source.name, source.text)
