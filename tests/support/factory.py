"""Inventories built by hand from the catalog, for tests that need no driver and no simulator.

``inventory("a100-sxm4-40gb*8", "tesla-t4")``: products or family names, ``*N`` for several. Addresses and UUIDs follow
from the position, so equal calls give equal values.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from aliquot.core.model import catalog
from aliquot.core.model.catalog import ComputeProfile, Device, Family, Profile
from aliquot.core.model.inventory import ComputeInstance, Gpu, GpuInstance, Inventory, Mig, MigMode

_BUSES = (0x07, 0x0F, 0x47, 0x4E, 0x87, 0x90, 0xB7, 0xBD)
"""Bus numbers of a DGX A100's GPUs, in their order. Further GPUs continue from 0xc1."""


def product_key(name: str) -> str:
    """Return a product as simulated nodes name it: ``NVIDIA A100-SXM4-40GB`` as ``a100-sxm4-40gb``."""
    words = "".join(c if c.isalnum() else "-" for c in name.lower())
    return words.removeprefix("nvidia-").strip("-")


def device(product: str) -> Device:
    """Return the catalog's row of a product, or of a family's first product."""
    rows = catalog.devices()
    for row in rows:
        if product_key(row.name) == product or row.mig_family == product:
            return row
    raise KeyError(product)


def gpu(product: str, index: int = 0, *, enabled: bool = False, subsystem: str = "") -> Gpu:
    """Build one GPU without instances. ``enabled`` is its MIG mode."""
    row = device(product)
    bus = _BUSES[index] if index < len(_BUSES) else 0xC1 + index - len(_BUSES)
    mode: MigMode = "enabled" if enabled and row.mig_family else "disabled"
    return Gpu(
        pci=f"0000:{bus:02x}:00.0",
        uuid=f"GPU-{index:08x}-0000-4000-8000-{bus:012x}",
        index=index,
        product=row.name,
        pci_device=row.pci_device,
        subsystem=subsystem,
        minor=index,
        family=row.mig_family,
        mig=Mig(capable=row.mig_family is not None, current=mode, pending=mode),
    )


def inventory(*products: str, enabled: bool = False) -> Inventory:
    """Build a node of these GPUs, in this order."""
    keys: list[str] = []
    for product in products:
        key, star, count = product.partition("*")
        keys += [key] * (int(count) if star else 1)
    gpus = tuple(gpu(key, n, enabled=enabled) for n, key in enumerate(keys))
    return Inventory(node="factory", gpus=gpus, driver="570.172.08", nvml="12.570.172.08")


def with_instances(node: Inventory, index: int, *instances: str) -> Inventory:
    """Return the node with MIG enabled and these instances on one GPU. ``3g.20gb@4`` is one instance; with compute
    instances it is ``3g.20gb@4:1c.3g.20gb;1c.3g.20gb``, and ``3g.20gb@4:`` without any.
    """
    target = node.gpus[index]
    family = node.family(target)
    placed = [_instance(family, text, n) for n, text in enumerate(instances, start=1)]
    changed = msgspec.structs.replace(target, mig=Mig(True, "enabled", "enabled"), instances=tuple(placed))
    gpus = tuple(changed if g.pci == target.pci else g for g in node.gpus)
    return msgspec.structs.replace(node, gpus=gpus)


def _instance(family: Family, text: str, instance_id: int) -> GpuInstance:
    name, _, rest = text.partition("@")
    start, colon, inside = rest.partition(":")
    profile = family.by_name[name]
    compute = [profile.default_compute] if not colon else list(_compute(profile, filter(None, inside.split(";"))))
    taken = 0
    parts: list[ComputeInstance] = []
    for n, each in enumerate(compute):
        place = next(p for p in each.placements if not p.mask & taken)
        taken |= place.mask
        parts.append(ComputeInstance(n, each.name, each.id, str(place), f"MIG-{instance_id}-{n}"))
    placement = str(profile.placement(int(start)))
    return GpuInstance(instance_id, profile.name, profile.id, placement, compute_instances=tuple(parts))


def _compute(profile: Profile, names: Iterable[str]) -> Sequence[ComputeProfile]:
    table = {c.name: c for c in profile.compute}
    return [table[name] for name in names]
