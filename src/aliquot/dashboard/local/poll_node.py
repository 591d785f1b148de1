"""One look at one node, for a worker thread: whatever goes wrong with the node is in the look."""

from __future__ import annotations

import time

import msgspec

from aliquot.dashboard.local import node_views as looks
from aliquot.dashboard.local import vm_rows as rows
from aliquot.dashboard.local.node_access import Seen, Spot, Use
from aliquot.dashboard.view_models import NodeLook, Virtual
from aliquot.errors import AliquotError

Taken = tuple[NodeLook, Virtual | None]
"""A look and its rows, None where these are as they were."""


def take(spot: Spot, former: NodeLook, seen: Seen | None = None, *, use: Use | None = None) -> Taken:
    """A look at a node (``seen`` where somebody just had one); the former one, marked as stale, where none can be had.

    While somebody makes a change that needs GPUs which nobody has open, the former one holds: we would be in the way.
    """
    begun = seen.begun if seen is not None else time.monotonic()
    change = spot.changing()
    said = str(change) if change is not None else ""
    if change is not None and change.alone and seen is None and former.inventory is not None:
        return msgspec.structs.replace(former, changing=said), None
    try:
        found = seen or spot.look(use=use)
        look, made = (
            looks.fresh(former, found, time.time() - (time.monotonic() - found.begun)),
            rows.rows(found.inventory, found.kept),
        )
    except AliquotError as error:
        return msgspec.structs.replace(looks.failed(former, error, begun), changing=said), None
    return msgspec.structs.replace(look, changing=said), made
