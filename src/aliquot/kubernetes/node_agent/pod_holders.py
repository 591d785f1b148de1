"""Pods as holders of devices: kubelet's allocation counts even while no process runs.

NVML sees only processes. A pod may have a MIG device but no CUDA context at the moment. A VM's launcher opens its vGPU
seconds after kubelet allocated it. Such a device must not be destroyed either, whether a device plugin or the driver of
a ResourceClaim allocated it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from aliquot.core.model.claims import Claim, with_claims
from aliquot.core.model.inventory import Gpu, Holder, Inventory, Vgpu
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
HoldersByDevice = Mapping[str, list[Holder]]


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
    """Return the inventory with pods as holders of the devices that kubelet or a claim allocated to them.

    Kubelet's device ids are UUIDs of instances, GPUs and mdevs, and PCI addresses of virtual functions and of GPUs in
    passthrough. A device that several pods share has ``::`` and a number after its UUID.
    """
    by_device: dict[str, list[Holder]] = {}
    claims = []
    for use in resolve_uses(uses, inventory):
        owner = holder(use, inventory)
        claims.append(Claim(owner, tuple(device.partition("::")[0] for device in use.devices)))
        for device in use.devices:
            by_device.setdefault(device, []).append(owner)
    held = with_claims(inventory, claims)
    if not by_device:
        return held
    return msgspec.structs.replace(held, gpus=tuple(_gpu_with_holders(gpu, by_device) for gpu in held.gpus))


def _gpu_with_holders(gpu: Gpu, by_device: HoldersByDevice) -> Gpu:
    vgpus = tuple(_vgpu_with_holders(vgpu, by_device) for vgpu in gpu.vgpus)
    virtual = gpu.virtual
    if virtual is not None:
        functions = tuple(
            msgspec.structs.replace(f, holders=_merge_holders(f.holders, by_device.get(f.pci, ())))
            for f in virtual.functions
        )
        virtual = msgspec.structs.replace(virtual, functions=functions)
    holders = _merge_holders(gpu.holders, by_device.get(gpu.pci, ()))
    return msgspec.structs.replace(gpu, vgpus=vgpus, virtual=virtual, holders=holders)


def _vgpu_with_holders(vgpu: Vgpu, by_device: HoldersByDevice) -> Vgpu:
    found = (*by_device.get(vgpu.uuid, ()), *by_device.get(vgpu.function, ()))
    return msgspec.structs.replace(vgpu, holders=_merge_holders(vgpu.holders, found)) if found else vgpu


def _merge_holders(first: Iterable[Holder], second: Iterable[Holder]) -> tuple[Holder, ...]:
    return tuple(dict.fromkeys((*first, *second)))


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
