"""The configuration file for a host of VMs, in the native format, which has vGPU types."""

from __future__ import annotations

from collections.abc import Iterable

from aliquot.core.config.export import Document, device_type
from aliquot.core.config.file import MIG, NATIVE, VGPU
from aliquot.core.config.formats.vgpu_device_manager import product_of_type
from aliquot.core.config.formats.yaml_writer import natural
from aliquot.core.config.generate import generate
from aliquot.core.model.inventory import Gpu, Inventory
from aliquot.core.model.vgpu_types import VgpuTable, VgpuType
from aliquot.errors import BlockedError

_SERIES = "QC"
"""Series for the default config, best first: graphics, then compute."""


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


def generate_vgpu_configs(inventory: Inventory) -> Document:
    """Generate a config for every type with a known id, under its name, in the format of vgpu-device-manager.

    Each means as many as one GPU holds, on every GPU that has the type. ``default`` is half of each GPU twice. Entries
    have a device filter if the node has several products. Raises BlockedError if no type of the GPUs is known.
    """
    products = _vgpu_products(inventory)
    names = [name for name in natural(_names(products)) if product_of_type(name)]
    if not names:
        raise BlockedError(
            "no vGPU type of this node's GPUs is known: there is nothing to generate",
            code="NO_TABLE",
            next_step="aliquot show",
        )
    configs: dict[str, object] = {name: _type_entries(products, name) for name in names}
    halves = [entry for gpu, table in products for entry in _half_entries(gpu, table, len(products) > 1)]
    return {"version": "v1", "vgpu-configs": configs | ({"default": halves} if halves else {})}


def _type_entries(products: list[tuple[Gpu, VgpuTable]], name: str) -> list[Document]:
    return [
        _vgpu_entry(gpu, name, max_vgpus(gpu, table, found), len(products) > 1)
        for gpu, table in products
        if (found := _creatable_type(table, name)) is not None
    ]


def _half_entries(gpu: Gpu, table: VgpuTable, filtered: bool) -> list[Document]:
    halves = [each.short for each in table.types if each.id is not None and each.max == 2 and not each.mig_backed]
    chosen = sorted((name for name in halves if name[-1] in _SERIES), key=lambda name: _SERIES.index(name[-1]))
    return [_vgpu_entry(gpu, name, 2, filtered) for name in chosen[:1] if product_of_type(name)]


def _vgpu_entry(gpu: Gpu, name: str, count: int, filtered: bool) -> Document:
    entry: Document = {"device-filter": device_type(gpu)} if filtered else {}
    return entry | {"devices": "all", "vgpu-devices": {name: count}}


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
