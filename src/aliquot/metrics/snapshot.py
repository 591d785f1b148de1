"""Source of the metrics about GPUs: the last observation of one node, as a frozen value."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from aliquot.core.model.desired import Desired
from aliquot.core.model.inventory import Inventory
from aliquot.core.model.plan import Blocker, Drift
from aliquot.core.model.usage import Usage
from aliquot.core.model.vgpu_usage import VgpuUsage
from aliquot.core.planner.rightsizing import hints
from aliquot.core.planner.verify import verify


class SnapshotDetails(msgspec.Struct, frozen=True):
    """Details of an observation beside the GPUs themselves."""

    at: float = 0.0
    """When the GPUs were last read, in seconds of wall time; 0 for never."""
    usage: tuple[Usage, ...] = ()
    blocked: tuple[str, ...] = ()
    """A rule for each GPU whose desired state is blocked."""
    unhealthy: int | None = None
    """Number of devices that get no new work, or None if no process monitors their health."""
    smaller: tuple[tuple[str, int, str], ...] = ()
    """Hints: GPU, instance, the smaller profile that is enough."""
    vgpus: tuple[VgpuUsage, ...] = ()
    """Usage and licenses of the vGPUs that VMs run with."""


class NodeSnapshot(msgspec.Struct, frozen=True, eq=False):
    """An observation of a node. Each one is equal only to itself."""

    node: str
    inventory: Inventory | None = None
    """None if the last observation failed: then the page has no GPU metrics, because they may be outdated."""
    details: SnapshotDetails = SnapshotDetails()
    requested: frozenset[str] = frozenset()
    """PCI addresses of the GPUs that have a desired state."""
    wanted: frozenset[str] = frozenset()
    """Profiles in the desired state; empty without one."""
    drift: tuple[Drift, ...] = ()
    """Differences between these GPUs and their desired state."""


def take_snapshot(
    node: str, inventory: Inventory | None, desired: Desired | None, details: SnapshotDetails
) -> NodeSnapshot:
    """Return an observation with the drift from the desired state. ``desired`` is None without a desired state."""
    if inventory is None or desired is None:
        return NodeSnapshot(node, inventory, details)
    requested = frozenset(gpu.pci for gpu in desired.gpus)
    return NodeSnapshot(node, inventory, details, requested, profiles(desired), verify(inventory, desired))


def merge(first: NodeSnapshot, second: NodeSnapshot) -> NodeSnapshot:
    """Return the observations of two roles of one agent as one. The GPUs are those of the first role that read them.

    Each role has a desired state of its own: what is requested, differs or is blocked adds up.
    """
    shown, other = (second, first) if first.inventory is None else (first, second)
    unhealthy = shown.details.unhealthy if shown.details.unhealthy is not None else other.details.unhealthy
    blocked = (*first.details.blocked, *second.details.blocked)
    details = msgspec.structs.replace(shown.details, blocked=blocked, unhealthy=unhealthy)
    return NodeSnapshot(
        shown.node,
        shown.inventory,
        details,
        first.requested | second.requested,
        first.wanted | second.wanted,
        tuple(dict.fromkeys((*first.drift, *second.drift))),
    )


def smaller_profiles(inventory: Inventory, usage: tuple[Usage, ...], now: float) -> tuple[tuple[str, int, str], ...]:
    """Return the hints for instances that were observed long enough."""
    return tuple((hint.gpu, hint.instance, hint.profile) for hint in hints(inventory, usage, now))


def profiles(desired: Desired) -> frozenset[str]:
    """Return the profiles that a desired state names."""
    return frozenset(instance.name for gpu in desired.gpus for instance in gpu.instances or ())


def rules(blockers: Iterable[Blocker]) -> tuple[str, ...]:
    """Return the rule of each blocker. The code has a fixed number of rules, so the number of series is bounded."""
    return tuple(blocker.rule for blocker in blockers)
