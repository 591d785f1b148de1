"""What the figures about GPUs are made of: the last look at one node, as a frozen value."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from aliquot.core.model.desired import Desired
from aliquot.core.model.inventory import Inventory
from aliquot.core.model.plan import Blocker, Drift
from aliquot.core.model.usage import Usage
from aliquot.core.planner.rightsizing import hints
from aliquot.core.planner.verify import verify


class SnapshotDetails(msgspec.Struct, frozen=True):
    """What is told of a look beside the GPUs themselves. ``at`` is when they were last read (seconds of wall time, 0
    for never). ``blocked`` has a rule for each wish that cannot be met now; ``unhealthy`` counts devices that get no
    new work, None where nobody listens for faults. ``smaller`` are hints: GPU, instance, the profile that
    would do.
    """

    at: float = 0.0
    usage: tuple[Usage, ...] = ()
    blocked: tuple[str, ...] = ()
    unhealthy: int | None = None
    smaller: tuple[tuple[str, int, str], ...] = ()


class NodeSnapshot(msgspec.Struct, frozen=True, eq=False):
    """``inventory`` is None where the last look failed: then nothing is told of GPUs that may be otherwise by now.
    ``wanted`` are the profiles that anybody asked for, none where nobody did; ``requested`` the PCI addresses of the
    GPUs of which something was asked, ``drift`` how they differ from that. Each look is equal to itself alone.
    """

    node: str
    inventory: Inventory | None = None
    details: SnapshotDetails = SnapshotDetails()
    requested: frozenset[str] = frozenset()
    wanted: frozenset[str] = frozenset()
    drift: tuple[Drift, ...] = ()


def take_snapshot(
    node: str, inventory: Inventory | None, desired: Desired | None, details: SnapshotDetails
) -> NodeSnapshot:
    """A look, and how the GPUs differ from what was asked of them. ``desired`` None: nobody asked."""
    if inventory is None or desired is None:
        return NodeSnapshot(node, inventory, details)
    requested = frozenset(gpu.pci for gpu in desired.gpus)
    return NodeSnapshot(node, inventory, details, requested, profiles(desired), verify(inventory, desired))


def smaller_profiles(inventory: Inventory, usage: tuple[Usage, ...], now: float) -> tuple[tuple[str, int, str], ...]:
    """The hints of what was watched long enough."""
    return tuple((hint.gpu, hint.instance, hint.profile) for hint in hints(inventory, usage, now))


def profiles(desired: Desired) -> frozenset[str]:
    """The profiles that a wish names."""
    return frozenset(instance.name for gpu in desired.gpus for instance in gpu.instances or ())


def rules(blockers: Iterable[Blocker]) -> tuple[str, ...]:
    """The rule of each blocker: their number is that of the refusals in the code, whatever was asked."""
    return tuple(blocker.rule for blocker in blockers)
