"""Observation of a node, for a worker thread. An error of the node is part of the result."""

from __future__ import annotations

import time

import msgspec

from aliquot.dashboard.local import node_views as views
from aliquot.dashboard.local import vm_rows as rows
from aliquot.dashboard.local.node_access import NodeAccess, NodeObservation, ReadUsage
from aliquot.dashboard.view_models import ObservedNode, VirtualizationView
from aliquot.errors import AliquotError

PolledNode = tuple[ObservedNode, VirtualizationView | None]
"""An observed node and its VM rows, None if the rows did not change."""


def poll(
    access: NodeAccess,
    previous: ObservedNode,
    observation: NodeObservation | None = None,
    *,
    read_usage: ReadUsage | None = None,
) -> PolledNode:
    """Observe a node, or use a recent ``observation``. On an error, return the previous view marked as stale.

    While a change needs exclusive access to GPUs, return the previous view, because reading would block the change.
    """
    begun = observation.begun if observation is not None else time.monotonic()
    change = access.changing()
    changing = str(change) if change is not None else ""
    if change is not None and change.exclusive and observation is None and previous.inventory is not None:
        return msgspec.structs.replace(previous, changing=changing), None
    try:
        found = observation or access.observe(read_usage=read_usage)
        view = views.fresh(previous, found, time.time() - (time.monotonic() - found.begun))
        made = rows.rows(found.inventory, found.recorded)
    except AliquotError as error:
        return msgspec.structs.replace(views.failed(previous, error, begun), changing=changing), None
    return msgspec.structs.replace(view, changing=changing), made
