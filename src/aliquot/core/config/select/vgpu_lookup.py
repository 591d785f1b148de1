"""Names of vGPU types against the tables: what a wish means on a GPU, and which cards know a name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from aliquot.core.config.text.node_reader import did_you_mean
from aliquot.core.config.text.vgpu_request import VgpuRequest
from aliquot.core.model import vgpu_types as vgpu
from aliquot.core.model.inventory import Gpu, Inventory
from aliquot.core.model.vgpu_types import VgpuTable, VgpuType

_LISTED = 12
"""Names that a sentence may list; the rest is for the command that it ends with."""


def find_type(table: VgpuTable, request: VgpuRequest) -> VgpuType | None:
    """The type that a wish names on a card, None if the card has no such type."""
    if request.id is not None:
        return table.by_id.get(request.id)
    return next((table.by_name[name] for name in request.names if name in table.by_name), None)


def tables(inventory: Inventory) -> Iterator[VgpuTable]:
    """Every table of vGPU types there is: what was learnt here, then the catalog."""
    yield from inventory.vgpu_tables
    yield from vgpu.tables()


def products_with_type(inventory: Inventory, request: VgpuRequest) -> tuple[str, ...]:
    """The products that have the type."""
    return tuple(dict.fromkeys(table.name for table in tables(inventory) if find_type(table, request)))


def every_name(inventory: Inventory) -> list[str]:
    """Every name that some card knows, short ones first."""
    names: dict[str, None] = {}
    for table in tables(inventory):
        names.update(dict.fromkeys(t.short for t in table.types))
    for table in tables(inventory):
        names.update(dict.fromkeys(t.name for t in table.types))
    return list(names)


def hint(request: VgpuRequest, names: Iterable[str]) -> str:
    """Names that come close, spelled as the wish is: short for short, full for full."""
    full = " " in request.name
    return did_you_mean(request.name, dict.fromkeys(n for n in names if (" " in n) == full))


def alternatives(request: VgpuRequest, table: VgpuTable) -> str:
    """What the card has instead: names that come close, else the first of its list."""
    near = hint(request, [n for t in table.types for n in (t.short, t.name)])
    names = [t.short for t in table.types]
    more = ", ..." if len(names) > _LISTED else ""
    return near or f" (here: {', '.join(names[:_LISTED])}{more})"


def belongs_to_other_product(inventory: Inventory, gpu: Gpu, requests: Sequence[VgpuRequest]) -> bool:
    """Whether the wished types are all of another board that has the PCI id of this GPU (A2 and A16)."""
    table = inventory.vgpu_table(gpu)
    if table is None or not requests or any(find_type(table, request) for request in requests):
        return False
    twins = [t for t in tables(inventory) if t.pci_device.lower() == gpu.pci_device.lower()]
    return all(any(find_type(twin, request) for twin in twins) for request in requests)
