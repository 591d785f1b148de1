"""The wish that asks for exactly what is: how to get back."""

from __future__ import annotations

from collections.abc import Collection

from aliquot.model.desired import Desired, GpuWish, InstanceWish
from aliquot.model.inventory import Gpu, Inventory


def former(inventory: Inventory, pcis: Collection[str], name: str = "the former state") -> Desired:
    """A wish that names every instance of some GPUs at its place, with its compute instances at theirs."""
    gpus = tuple(_wish(gpu) for gpu in inventory.gpus if gpu.pci in pcis and gpu.mig.capable)
    return Desired(gpus=gpus, name=name)


def _wish(gpu: Gpu) -> GpuWish:
    instances = tuple(
        InstanceWish(
            profile_id=i.profile_id,
            name=i.profile,
            start=i.place.start,
            compute=tuple(c.profile_id for c in i.compute_instances),
            compute_starts=tuple(c.place.start for c in i.compute_instances),
        )
        for i in gpu.instances
    )
    return GpuWish(pci=gpu.pci, mig=gpu.mig.enabled, instances=instances, source="the journal")
