"""One look at one node, for a worker thread: whatever goes wrong with the node is in the look."""

from __future__ import annotations

import time

import msgspec

from aliquot.dashboard.local import node_views as looks
from aliquot.dashboard.local import vm_rows as rows
from aliquot.dashboard.local.node_access import NodeAccess, NodeObservation, ReadUsage
from aliquot.dashboard.view_models import ObservedNode, VirtualizationView
from aliquot.errors import AliquotError

PolledNode = tuple[ObservedNode, VirtualizationView | None]
"""A look and its rows, None where these are as they were."""


def poll(
    access: NodeAccess,
    previous: ObservedNode,
    observation: NodeObservation | None = None,
    *,
    read_usage: ReadUsage | None = None,
) -> PolledNode:
    """A look at a node (``observation`` where somebody just had one); the former one, marked as stale, where none can
    be had.

    While somebody makes a change that needs GPUs which nobody has open, the former one holds: we would be in the way.
    """
    begun = observation.begun if observation is not None else time.monotonic()
    change = access.changing()
    changing = str(change) if change is not None else ""
    if change is not None and change.exclusive and observation is None and previous.inventory is not None:
        return msgspec.structs.replace(previous, changing=changing), None
    try:
        found = observation or access.observe(read_usage=read_usage)
        view = looks.fresh(previous, found, time.time() - (time.monotonic() - found.begun))
        made = rows.rows(found.inventory, found.recorded)
    except AliquotError as error:
        return msgspec.structs.replace(looks.failed(previous, error, begun), changing=changing), None
    return msgspec.structs.replace(view, changing=changing), made
