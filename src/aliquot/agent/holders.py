"""Which pods are on which MIG device: kubelet's allocation counts even while no process runs.

NVML sees processes. A pod that was given a MIG device and is between two CUDA contexts has none, but its device must
not be destroyed either.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from aliquot.model.inventory import Gpu, GpuInstance, Holder, Inventory
from aliquot.model.plan import Plan

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
    """The inventory with every instance and whole GPU held that kubelet gave to a pod."""
    by_device: dict[str, list[Holder]] = {}
    for use in uses:
        for device in use.devices:
            by_device.setdefault(device.partition("::")[0], []).append(holder(use))
    if not by_device:
        return inventory
    gpus = tuple(_gpu(gpu, by_device) for gpu in inventory.gpus)
    return msgspec.structs.replace(inventory, gpus=gpus)


def _gpu(gpu: Gpu, by_device: Mapping[str, Sequence[Holder]]) -> Gpu:
    on_all = by_device.get(gpu.uuid, ())
    instances = tuple(_instance(i, by_device, on_all) for i in gpu.instances)
    whole = _joined(gpu.holders, on_all)
    return msgspec.structs.replace(gpu, instances=instances, holders=whole)


def _instance(
    instance: GpuInstance, by_device: Mapping[str, Sequence[Holder]], on_all: Sequence[Holder]
) -> GpuInstance:
    compute = tuple(
        msgspec.structs.replace(c, holders=_joined(c.holders, by_device.get(c.uuid, ())))
        for c in instance.compute_instances
    )
    added = [*on_all, *(h for c in compute for h in by_device.get(c.uuid, ()))]
    if not added:
        return instance
    holders = _joined(instance.holders, added)
    return msgspec.structs.replace(instance, compute_instances=compute, held=True, holders=holders)


def _joined(first: Sequence[Holder], second: Sequence[Holder]) -> tuple[Holder, ...]:
    return tuple(dict.fromkeys((*first, *second)))


def pods_in_the_way(plan: Plan) -> tuple[tuple[str, str], ...]:
    """The pods (namespace, name) that hold what a blocked plan would have to destroy, in order."""
    found = [h.id for b in plan.blockers if b.rule == "HELD" for h in b.holders if h.kind == POD]
    return tuple((ns, name) for ns, _, name in (each.partition("/") for each in dict.fromkeys(found)))


def held_only(plan: Plan) -> bool:
    """True if nothing but holders stands in the way."""
    return plan.blocked and all(b.rule == "HELD" for b in plan.blockers)
