"""Conversion of a node's observation to what the page shows. Pure."""

from __future__ import annotations

import msgspec

from aliquot.core.config.boot_record import NAME, replay
from aliquot.core.model.plan import Drift
from aliquot.core.planner.verify import verify
from aliquot.dashboard.local.node_access import NodeObservation
from aliquot.dashboard.view_models import ObservedNode
from aliquot.errors import AliquotError


def fresh(previous: ObservedNode, observation: NodeObservation, at: float) -> ObservedNode:
    """Convert a successful observation, and compute the drift from the last request.

    ``at`` is the wall time in seconds when the observation began.
    """
    desired, gone = replay(observation.recorded, observation.inventory)
    drift = tuple(Drift(f.pci, "missing-gpu", f.message) for f in gone) + verify(observation.inventory, desired)
    return ObservedNode(
        name=previous.name,
        inventory=observation.inventory,
        observed_at=at,
        desired=(desired.name or NAME) if observation.recorded else "",
        drift=drift,
        message=observation.record_error,
        usage=previous.usage if observation.usage is None else observation.usage,
        begun=observation.begun,
    )


def failed(previous: ObservedNode, error: AliquotError, begun: float) -> ObservedNode:
    """Mark the last observation as stale, with the error of a newer attempt that began at ``begun``."""
    return msgspec.structs.replace(previous, error=error.brief, next_step=error.next_step or "", begun=begun)


def same(one: ObservedNode, other: ObservedNode) -> bool:
    """Report whether two observations are equal except for their times."""
    return (
        msgspec.structs.replace(one, observed_at=other.observed_at, begun=other.begun, revision=other.revision) == other
    )
