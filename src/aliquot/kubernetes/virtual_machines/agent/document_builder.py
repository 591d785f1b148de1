"""The node document that a round of the devices agent publishes."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from aliquot.core.engine.history import PastRun
from aliquot.kubernetes.gpu.node_document import NodeDocument
from aliquot.kubernetes.node_agent.last_usage import LastUsage
from aliquot.kubernetes.virtual_machines.agent.reconciler import RoundResult


def build_document(
    done: RoundResult | None, node: str, pod: str, used: LastUsage, pasts: Sequence[PastRun]
) -> NodeDocument | None:
    """Build the document; None if no round observed the GPUs or the GPUs could not be read."""
    inventory = done.view.inventory if done is not None else None
    if inventory is None:
        return None
    named = msgspec.structs.replace(inventory, node=node)
    return NodeDocument(
        inventory=named,
        pod=pod,
        usage=used.current_usage(inventory, pasts),
        vgpus=used.current_licenses(inventory),
        past_runs=tuple(pasts),
    )
