"""Inventories and desired states for oracle tests, from placed states by profile name."""

from __future__ import annotations

from collections.abc import Iterable

from aliquot.core.model import catalog
from aliquot.core.model.desired import Desired, DesiredGpu, DesiredInstance
from aliquot.core.model.inventory import ComputeInstance, Gpu, GpuInstance, Holder, Inventory, Mig
from aliquot.core.planner.semantics import instance_id

PCI = "0000:07:00.0"
PROCESS = Holder("process", "4711", "train.py")


def gpu(
    family: catalog.Family,
    placed: Iterable[tuple[str, int]],
    held: Iterable[tuple[str, int]] = (),
    pci: str = PCI,
    swapped: bool | None = None,
) -> Gpu:
    """Build a GPU in MIG mode with whole instances."""
    busy = set(held)
    instances: list[GpuInstance] = []
    for name, start in sorted(placed):
        profile = family.by_name[name]
        whole = profile.default_compute
        holders = (PROCESS,) if (name, start) in busy else ()
        place = profile.placement(start)
        ident = instance_id(family, place, bool(swapped), [i.id for i in instances])
        compute = ComputeInstance(0, whole.name, whole.id, str(whole.placements[0]), holders=holders)
        instances.append(GpuInstance(ident, name, profile.id, str(place), bool(holders), holders, -1, (compute,)))
    product = family.products[0]
    return Gpu(
        pci=pci,
        uuid=f"GPU-{pci}",
        index=0,
        product=product.name,
        pci_device=product.pci_device,
        family=family.name,
        mig=Mig(True, "enabled", "enabled"),
        instances=tuple(sorted(instances, key=lambda i: i.id)),
        slots_mirrored=swapped,
    )


def node(*gpus: Gpu) -> Inventory:
    return Inventory(node="oracle", gpus=gpus, driver="580.65.06")


def desired_state(family: catalog.Family, names: Iterable[str], pci: str = PCI) -> Desired:
    """Build a desired state of whole instances of these profiles, at any place."""
    items = tuple(
        DesiredInstance(profile_id=p.id, name=p.name, compute=(p.default_compute.id,))
        for p in (family.by_name[name] for name in names)
    )
    return Desired(gpus=(DesiredGpu(pci=pci, mig=True, instances=items),), name="oracle")
