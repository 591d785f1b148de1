"""What the page shows of a node, from one look at it. Pure."""

from __future__ import annotations

import msgspec

from aliquot.core.config.boot_record import NAME, replay
from aliquot.core.model.plan import Drift
from aliquot.core.planner.verify import verify
from aliquot.dashboard.local.node_access import Seen
from aliquot.dashboard.view_models import NodeLook
from aliquot.errors import AliquotError


def fresh(former: NodeLook, seen: Seen, at: float) -> NodeLook:
    """A look that succeeded, begun at ``at`` seconds of wall time, with how the node differs from what was asked of it
    last.
    """
    desired, gone = replay(seen.kept, seen.inventory)
    drift = tuple(Drift(f.pci, "missing-gpu", f.message) for f in gone) + verify(seen.inventory, desired)
    return NodeLook(
        name=former.name,
        inventory=seen.inventory,
        seen=at,
        wish=(desired.name or NAME) if seen.kept else "",
        drift=drift,
        message=seen.fault,
        usage=former.usage if seen.usage is None else seen.usage,
        begun=seen.begun,
    )


def failed(former: NodeLook, error: AliquotError, begun: float) -> NodeLook:
    """The last look, marked as stale, with why there is no newer one: one was ``begun``."""
    return msgspec.structs.replace(former, trouble=error.brief, next_step=error.next_step or "", begun=begun)


def same(one: NodeLook, other: NodeLook) -> bool:
    """Whether two looks show the same: everything but when."""
    return msgspec.structs.replace(one, seen=other.seen, begun=other.begun, revision=other.revision) == other
