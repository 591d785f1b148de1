"""Names of vGPU types against the tables: what a wish means on a GPU, and which cards know a name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from aliquot.core.config.text.node_reader import close
from aliquot.core.config.text.vgpu_request import TypeWish
from aliquot.core.model import vgpu_types as vgpu
from aliquot.core.model.inventory import Gpu, Inventory
from aliquot.core.model.vgpu_types import VgpuTable, VgpuType

_LISTED = 12
"""Names that a sentence may list; the rest is for the command that it ends with."""


def find(table: VgpuTable, wish: TypeWish) -> VgpuType | None:
    """The type that a wish names on a card, None if the card has no such type."""
    if wish.id is not None:
        return table.by_id.get(wish.id)
    return next((table.by_name[name] for name in wish.names if name in table.by_name), None)


def tables(inventory: Inventory) -> Iterator[VgpuTable]:
    """Every table of vGPU types there is: what was learnt here, then the catalog."""
    yield from inventory.vgpu_tables
    yield from vgpu.tables()


def owners(inventory: Inventory, wish: TypeWish) -> tuple[str, ...]:
    """The products that have the type."""
    return tuple(dict.fromkeys(table.name for table in tables(inventory) if find(table, wish)))


def every_name(inventory: Inventory) -> list[str]:
    """Every name that some card knows, short ones first."""
    names: dict[str, None] = {}
    for table in tables(inventory):
        names.update(dict.fromkeys(t.short for t in table.types))
    for table in tables(inventory):
        names.update(dict.fromkeys(t.name for t in table.types))
    return list(names)


def hint(wish: TypeWish, names: Iterable[str]) -> str:
    """Names that come close, spelled as the wish is: short for short, full for full."""
    full = " " in wish.name
    return close(wish.name, dict.fromkeys(n for n in names if (" " in n) == full))


def alternatives(wish: TypeWish, table: VgpuTable) -> str:
    """What the card has instead: names that come close, else the first of its list."""
    near = hint(wish, [n for t in table.types for n in (t.short, t.name)])
    names = [t.short for t in table.types]
    more = ", ..." if len(names) > _LISTED else ""
    return near or f" (here: {', '.join(names[:_LISTED])}{more})"


def belongs_elsewhere(inventory: Inventory, gpu: Gpu, wishes: Sequence[TypeWish]) -> bool:
    """Whether the wished types are all of another board that has the PCI id of this GPU (A2 and A16)."""
    table = inventory.vgpu_table(gpu)
    if table is None or not wishes or any(find(table, wish) for wish in wishes):
        return False
    twins = [t for t in tables(inventory) if t.pci_device.lower() == gpu.pci_device.lower()]
    return all(any(find(twin, wish) for twin in twins) for wish in wishes)
