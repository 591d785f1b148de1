"""The configuration file for a host of VMs, in the native format, which has vGPU types."""

from __future__ import annotations

from collections.abc import Iterable

from aliquot.core.config.export import Document
from aliquot.core.config.file import MIG, NATIVE, VGPU
from aliquot.core.config.formats.yaml_writer import natural
from aliquot.core.config.generate import generate
from aliquot.core.model.inventory import Gpu, Inventory
from aliquot.core.model.vgpu_types import VgpuTable, VgpuType


def has_vgpus(inventory: Inventory) -> bool:
    """Report whether the vGPU host driver runs on this node, with a GPU whose types are known."""
    manager = inventory.host is not None and inventory.host.vgpu_manager is True
    return manager and bool(_vgpu_products(inventory))


def generate_native(inventory: Inventory) -> Document:
    """Generate every name of `generate` for the GPUs with MIG, and ``all-vgpu-TYPE`` for every type with a known id.

    ``all-vgpu-TYPE`` means as many as one GPU holds, on every GPU that has the type. Entries name the product if the
    node has several.
    """
    configs: dict[str, object] = {}
    if any(gpu.mig.capable for gpu in inventory.gpus):
        partitioned = generate(inventory)["mig-configs"]
        assert isinstance(partitioned, dict)
        configs = {name: [_native(entry) for entry in entries] for name, entries in partitioned.items()}
    products = _vgpu_products(inventory)
    for name in natural(_names(products)):
        configs[f"all-vgpu-{name}"] = [
            {
                "gpus": {"product": gpu.product} if len(products) > 1 else "all",
                VGPU: {found.name: max_vgpus(gpu, table, found)},
            }
            for gpu, table in products
            if (found := _creatable_type(table, name)) is not None
        ]
    return {"version": NATIVE, "configs": configs}


def max_vgpus(gpu: Gpu, table: VgpuTable, vgpu_type: VgpuType) -> int:
    """Return how many vGPUs of a type one GPU holds: the type's maximum, limited by the number of virtual functions."""
    total = gpu.virtual.total if gpu.virtual is not None and gpu.virtual.total else table.total_vfs
    return min(vgpu_type.max, total) if table.sriov and total else vgpu_type.max


def _vgpu_products(inventory: Inventory) -> list[tuple[Gpu, VgpuTable]]:
    """Return one GPU of each product that has types, in the order of the node."""
    found: dict[str, tuple[Gpu, VgpuTable]] = {}
    for gpu in inventory.gpus:
        table = inventory.vgpu_table(gpu)
        if table is not None and not gpu.lost:
            found.setdefault(gpu.product, (gpu, table))
    return list(found.values())


def _names(products: Iterable[tuple[Gpu, VgpuTable]]) -> set[str]:
    return {
        each.short for _, table in products for each in table.types if _creatable_type(table, each.short) is not None
    }


def _creatable_type(table: VgpuTable, short: str) -> VgpuType | None:
    """Return the type with a short name, if it can be created."""
    found = table.by_name.get(short)
    return found if found is not None and found.id is not None else None


def _native(entry: Document) -> Document:
    """Convert an entry of mig-parted's format to ours."""
    filters = entry.get("device-filter")
    mig = entry["mig-devices"] if entry["mig-enabled"] else "disabled"
    return {"gpus": {"device-filter": filters} if filters else "all", MIG: mig}
