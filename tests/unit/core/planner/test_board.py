"""Tables are compiled once, however often they are read, and not kept forever."""

from __future__ import annotations

import gc
import weakref

import msgspec

from aliquot.core.model import catalog
from aliquot.core.model.catalog import Family
from aliquot.core.planner import placement_table as boards
from aliquot.core.planner.fragmentation import find_fragmentation
from aliquot.core.planner.placement_table import PlacementTable, compiled_table
from aliquot.kubernetes.gpu import node_document as document
from aliquot.kubernetes.gpu.node_document import NodeDocument
from support import factory

FAMILY = catalog.family("a100-40gb")


def fresh_family(**other: object) -> Family:
    return msgspec.structs.replace(FAMILY, **other)


def test_tables_that_say_the_same_share_one() -> None:
    boards.compiled_table.cache_clear()
    first = compiled_table(fresh_family())
    assert all(compiled_table(fresh_family()) is first for _ in range(300))
    assert compiled_table(fresh_family(driver_min="1.0")) is not first
    assert compiled_table(fresh_family()) is first


def test_tables_of_documents_are_not_kept_for_ever() -> None:
    # A driver's own table is in each document of its node. A malicious document may contain any table.
    boards.compiled_table.cache_clear()
    inventory = factory.inventory("a100-sxm4-40gb*2", enabled=True)
    kept: weakref.WeakSet[PlacementTable] = weakref.WeakSet()
    for n in range(300):
        tables = (fresh_family(driver_min=f"{n}.0"),)
        text = document.encode(NodeDocument(inventory=msgspec.structs.replace(inventory, tables=tables)))
        found = document.decode(text)
        assert found is not None
        assert find_fragmentation(found.inventory, found.inventory.gpus[0]) is not None
        kept.add(compiled_table(found.inventory.family(found.inventory.gpus[0])))
    found = None
    gc.collect()
    assert len(kept) <= 64
