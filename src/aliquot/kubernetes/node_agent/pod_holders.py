"""Pods as holders of devices: kubelet's allocation counts even while no process runs.

NVML sees only processes. A pod may have a MIG device but no CUDA context at the moment. Its device must not be
destroyed either, whether a device plugin or the driver of a ResourceClaim allocated it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

import msgspec

from aliquot.core.model.claims import Claim, with_claims
from aliquot.core.model.inventory import Holder, Inventory
from aliquot.core.model.plan import Plan
from aliquot.kubernetes.gpu import claimed_device
from aliquot.kubernetes.gpu.claimed_device import ClaimedDevice

POD: Final = "pod"


class PodDeviceUse(msgspec.Struct, frozen=True):
    """Devices of a container of a pod."""

    namespace: str
    pod: str
    container: str
    devices: tuple[str, ...] = ()
    """UUIDs of the devices that kubelet allocated."""
    claim: ClaimedDevice | None = None
    """One device of a ResourceClaim."""


Uses = Callable[[], Awaitable[Sequence[PodDeviceUse]]]
"""Asks kubelet for the devices of pods."""


def resolve_uses(uses: Iterable[PodDeviceUse], inventory: Inventory) -> tuple[PodDeviceUse, ...]:
    """Return the uses with the UUIDs of claimed devices.

    An unidentified device of an NVIDIA driver may be any device, so it counts as all GPUs. Claims of other drivers are
    omitted unless their names identify a device of the node.
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
    """Return the pod as a holder with the id ``namespace/name``."""
    name = use.container
    if use.claim is not None:
        name = f"{name}, {use.claim}"
        if not claimed_device.device_uuids(use.claim, inventory):
            name += f", whose device {use.claim.device!r} identifies no GPU: it may be any"
    return Holder(POD, f"{use.namespace}/{use.pod}", name)


def held_by_pods(inventory: Inventory, uses: Iterable[PodDeviceUse]) -> Inventory:
    """Return the inventory with pods as holders of the instances and GPUs that kubelet or a claim allocated to them.

    A device that several pods share has ``::`` and a number after its UUID.
    """
    shares = (
        Claim(holder(use, inventory), tuple(device.partition("::")[0] for device in use.devices))
        for use in resolve_uses(uses, inventory)
    )
    return with_claims(inventory, shares)


def uses_of_devices(uuids: frozenset[str], uses: Iterable[PodDeviceUse], inventory: Inventory) -> list[PodDeviceUse]:
    """Return the pods that have one of these devices. A pod with a whole GPU has its MIG devices."""
    parts = {gpu.uuid: [c.uuid for i in gpu.instances for c in i.compute_instances] for gpu in inventory.gpus}

    def has(use: PodDeviceUse) -> bool:
        own = [device.partition("::")[0] for device in use.devices]
        return not uuids.isdisjoint([*own, *(part for device in own for part in parts.get(device, ()))])

    return [use for use in resolve_uses(uses, inventory) if has(use)]


def blocking_pods(plan: Plan) -> tuple[tuple[str, str], ...]:
    """Return the pods (namespace, name) that hold instances that a blocked plan would destroy, in order."""
    found = [h.id for b in plan.blockers if b.rule == "HELD" for h in b.holders if h.kind == POD]
    return tuple((ns, name) for ns, _, name in (each.partition("/") for each in dict.fromkeys(found)))


def blocked_by_holders_only(plan: Plan) -> bool:
    """Report whether a plan is blocked, and only by holders."""
    return plan.blocked and all(b.rule == "HELD" for b in plan.blockers)


def blocked_by_processes_only(plan: Plan) -> bool:
    """Report whether a plan is blocked, and only by processes and others that are no pods.

    These may be ended. The plan must still include all pods: it may not destroy an instance of a pod that does not
    block it.
    """
    return blocked_by_holders_only(plan) and not blocking_pods(plan)
