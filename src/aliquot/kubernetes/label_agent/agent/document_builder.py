"""Builder of the node's document from an observation."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from aliquot.core.engine.history import PastRun
from aliquot.core.planner.verify import verify
from aliquot.kubernetes.gpu import node_document as documents
from aliquot.kubernetes.gpu.config_label import NamedConfigSource
from aliquot.kubernetes.gpu.node_document import DocumentSource, NodeDocument
from aliquot.kubernetes.label_agent.agent.observation import Observation
from aliquot.kubernetes.node_agent.last_usage import LastUsage


def build_document(
    observation: Observation,
    sources: Sequence[NamedConfigSource],
    pod: str,
    used: LastUsage,
    pasts: tuple[PastRun, ...],
) -> NodeDocument | None:
    """Build the node's document; None if the GPUs could not be read.

    ``used`` is the last sample of usage, ``pasts`` are the newest changes.
    """
    if observation.inventory is None:
        return None
    desired = observation.request.desired if observation.request is not None else None
    return NodeDocument(
        inventory=msgspec.structs.replace(observation.inventory, node=observation.node),
        pod=pod,
        label=observation.label or "",
        drift=verify(observation.inventory, desired) if desired is not None else (),
        reserved=tuple(sorted(observation.reserved)),
        strategy=observation.settings.strategy,
        holders=observation.holder_policy.policy,
        manages=observation.settings.manage,
        for_vms=observation.managed.for_vms,
        sources=tuple(_source(each) for each in sources),
        usage=used.current_usage(observation.inventory, pasts),
        vgpus=used.current_licenses(observation.inventory),
        past_runs=pasts,
    )


def _source(source: NamedConfigSource) -> DocumentSource:
    """Return a source, with its text only if it is a file, which other programs cannot read."""
    if source.config_map or source.text is None or len(source.text) > documents.MOST_SOURCE:
        return DocumentSource(source.name)
    return DocumentSource(source.name, source.text)
