"""What one look of the agent comes to for those who look on."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from aliquot.core.engine.history import Past
from aliquot.core.planner.verify import verify
from aliquot.kubernetes.gpu import node_document as documents
from aliquot.kubernetes.gpu.config_label import Source
from aliquot.kubernetes.gpu.node_document import Document, Text
from aliquot.kubernetes.label_agent.agent.observation import Observation
from aliquot.kubernetes.node_agent.last_usage import Used


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
