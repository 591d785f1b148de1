"""Which pods are on which MIG device: kubelet's allocation counts even while no process runs.

NVML sees processes. A pod that was given a MIG device and is between two CUDA contexts has none, but its device must
not be destroyed either.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from aliquot.core.model.claims import Claim, held
from aliquot.core.model.inventory import Holder, Inventory
from aliquot.core.model.plan import Plan

POD = "pod"


class Use(msgspec.Struct, frozen=True):
    """A pod and the UUIDs of the devices that kubelet gave to one of its containers."""

    namespace: str
    pod: str
    container: str
    devices: tuple[str, ...]


def holder(use: Use) -> Holder:
    """The pod as a holder: ``id`` is ``namespace/name``."""
    return Holder(POD, f"{use.namespace}/{use.pod}", use.container)


def held_by_pods(inventory: Inventory, uses: Iterable[Use]) -> Inventory:
    """The inventory with every instance and whole GPU held that kubelet gave to a pod. A device that several pods
    share has ``::`` and a number after its UUID.
    """
    shares = (Claim(holder(use), tuple(device.partition("::")[0] for device in use.devices)) for use in uses)
    return held(inventory, shares)


def pods_in_the_way(plan: Plan) -> tuple[tuple[str, str], ...]:
    """The pods (namespace, name) that hold what a blocked plan would have to destroy, in order."""
    found = [h.id for b in plan.blockers if b.rule == "HELD" for h in b.holders if h.kind == POD]
    return tuple((ns, name) for ns, _, name in (each.partition("/") for each in dict.fromkeys(found)))


def held_only(plan: Plan) -> bool:
    """True if nothing but holders stands in the way."""
    return plan.blocked and all(b.rule == "HELD" for b in plan.blockers)
