"""Names of vGPU types in the tables: the meaning of a request on a GPU, and the products that have a name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from aliquot.core.config.text.node_reader import did_you_mean
from aliquot.core.config.text.vgpu_request import VgpuRequest
from aliquot.core.model import vgpu_types as vgpu
from aliquot.core.model.inventory import Gpu, Inventory
from aliquot.core.model.vgpu_types import VgpuTable, VgpuType

_LISTED = 12
"""Maximum number of names in a sentence; the command that it ends with lists the rest."""


def find_type(table: VgpuTable, request: VgpuRequest) -> VgpuType | None:
    """Return the type that a request names on a product, None if the product does not have it."""
    if request.id is not None:
        return table.by_id.get(request.id)
    return next((table.by_name[name] for name in request.names if name in table.by_name), None)


def tables(inventory: Inventory) -> Iterator[VgpuTable]:
    """Return every table of vGPU types: those that this node reported, then the catalog."""
    yield from inventory.vgpu_tables
    yield from vgpu.tables()


def products_with_type(inventory: Inventory, request: VgpuRequest) -> tuple[str, ...]:
    """Return the products that have the type."""
    return tuple(dict.fromkeys(table.name for table in tables(inventory) if find_type(table, request)))


def every_name(inventory: Inventory) -> list[str]:
    """Return every name of every product, short ones first."""
    names: dict[str, None] = {}
    for table in tables(inventory):
        names.update(dict.fromkeys(t.short for t in table.types))
    for table in tables(inventory):
        names.update(dict.fromkeys(t.name for t in table.types))
    return list(names)


def hint(request: VgpuRequest, names: Iterable[str]) -> str:
    """Suggest similar names in the form of the request: short for short, full for full."""
    full = " " in request.name
    return did_you_mean(request.name, dict.fromkeys(n for n in names if (" " in n) == full))


def alternatives(request: VgpuRequest, table: VgpuTable) -> str:
    """Suggest what the product has instead: similar names, else the first of its list."""
    near = hint(request, [n for t in table.types for n in (t.short, t.name)])
    names = [t.short for t in table.types]
    more = ", ..." if len(names) > _LISTED else ""
    return near or f" (here: {', '.join(names[:_LISTED])}{more})"


def belongs_to_other_product(inventory: Inventory, gpu: Gpu, requests: Sequence[VgpuRequest]) -> bool:
    """Report whether all requested types are of another board with the PCI id of this GPU (A2 and A16)."""
    table = inventory.vgpu_table(gpu)
    if table is None or not requests or any(find_type(table, request) for request in requests):
        return False
    twins = [t for t in tables(inventory) if t.pci_device.lower() == gpu.pci_device.lower()]
    return all(any(find_type(twin, request) for twin in twins) for request in requests)
