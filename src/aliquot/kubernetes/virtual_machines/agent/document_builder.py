"""What one round of the devices agent comes to for those who look on."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from aliquot.core.engine.history import Past
from aliquot.kubernetes.gpu.node_document import Document
from aliquot.kubernetes.node_agent.last_usage import Used
from aliquot.kubernetes.virtual_machines.agent.reconcile import Round


def of_round(done: Round | None, node: str, pod: str, used: Used, pasts: Sequence[Past]) -> Document | None:
    """None where nothing was looked at, or the GPUs could not be read."""
    inventory = done.view.inventory if done is not None else None
    if inventory is None:
        return None
    named = msgspec.structs.replace(inventory, node=node)
    return Document(inventory=named, pod=pod, usage=used.told(inventory, pasts), pasts=tuple(pasts))
