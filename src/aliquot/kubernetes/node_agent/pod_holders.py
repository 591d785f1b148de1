"""Which pods are on which MIG device: kubelet's allocation counts even while no process runs.

NVML sees processes. A pod that was given a MIG device and is between two CUDA contexts has none, but its device must
not be destroyed either, whether a device plugin gave it or the driver of a ResourceClaim.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence

import msgspec

from aliquot.core.model.claims import Claim, with_claims
from aliquot.core.model.inventory import Holder, Inventory
from aliquot.core.model.plan import Plan
from aliquot.kubernetes.gpu import claimed_device
from aliquot.kubernetes.gpu.claimed_device import ClaimedDevice

POD = "pod"


class PodDeviceUse(msgspec.Struct, frozen=True):
    """A pod and the UUIDs of the devices that kubelet gave to one of its containers; or one device that the container
    has by a ResourceClaim.
    """

    namespace: str
    pod: str
    container: str
    devices: tuple[str, ...] = ()
    claim: ClaimedDevice | None = None


Uses = Callable[[], Awaitable[Sequence[PodDeviceUse]]]
"""Asks kubelet which pods have which devices."""


def resolve_uses(uses: Iterable[PodDeviceUse], inventory: Inventory) -> tuple[PodDeviceUse, ...]:
    """The uses with the UUIDs of what is claimed. A device of a driver of NVIDIA's that cannot be told may be any: then
    it is every GPU. Claims of other drivers are left out, unless their names tell a device of ours.
    """
    found = []
    for use in uses:
        if use.claim is not None:
            all_gpus = tuple(gpu.uuid for gpu in inventory.gpus) if claimed_device.is_nvidia(use.claim) else ()
            devices = claimed_device.device_uuids(use.claim, inventory) or all_gpus
            use = msgspec.structs.replace(use, devices=devices)
        if use.devices:
            found.append(use)
    return tuple(found)


def holder(use: PodDeviceUse, inventory: Inventory) -> Holder:
    """The pod as a holder: ``id`` is ``namespace/name``."""
    name = use.container
    if use.claim is not None:
        name = f"{name}, {use.claim}"
        if not claimed_device.device_uuids(use.claim, inventory):
            name += f", whose device {use.claim.device!r} names no GPU: it may be any"
    return Holder(POD, f"{use.namespace}/{use.pod}", name)


def held_by_pods(inventory: Inventory, uses: Iterable[PodDeviceUse]) -> Inventory:
    """The inventory with every instance and whole GPU held that kubelet, or a claim, gave to a pod. A device that
    several pods share has ``::`` and a number after its UUID.
    """
    shares = (
        Claim(holder(use, inventory), tuple(device.partition("::")[0] for device in use.devices))
        for use in resolve_uses(uses, inventory)
    )
    return with_claims(inventory, shares)


def uses_of_devices(uuids: frozenset[str], uses: Iterable[PodDeviceUse], inventory: Inventory) -> list[PodDeviceUse]:
    """The pods that have one of these devices. Who has a whole GPU has its MIG devices."""
    parts = {gpu.uuid: [c.uuid for i in gpu.instances for c in i.compute_instances] for gpu in inventory.gpus}

    def has(use: PodDeviceUse) -> bool:
        own = [device.partition("::")[0] for device in use.devices]
        return not uuids.isdisjoint([*own, *(part for device in own for part in parts.get(device, ()))])

    return [use for use in resolve_uses(uses, inventory) if has(use)]


def blocking_pods(plan: Plan) -> tuple[tuple[str, str], ...]:
    """The pods (namespace, name) that hold what a blocked plan would have to destroy, in order."""
    found = [h.id for b in plan.blockers if b.rule == "HELD" for h in b.holders if h.kind == POD]
    return tuple((ns, name) for ns, _, name in (each.partition("/") for each in dict.fromkeys(found)))


def blocked_by_holders_only(plan: Plan) -> bool:
    """True if nothing but holders stands in the way."""
    return plan.blocked and all(b.rule == "HELD" for b in plan.blockers)
