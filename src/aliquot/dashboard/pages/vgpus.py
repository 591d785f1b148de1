"""The vGPU page: every place for a vGPU with its current vGPU and the types that can be created."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import msgspec

from aliquot.dashboard import formatting as words
from aliquot.dashboard.page import PageContent, Region, Visit
from aliquot.dashboard.pages.shared import first, missing, part, refusals
from aliquot.dashboard.view_models import VgpuRow

MOST = 400
"""The number of places on one page."""
ALIKE = 4
"""At least this many empty places of a GPU on which no vGPU can be created are combined into one row."""


class VgpuPlaceRow(msgspec.Struct, frozen=True):
    """A place as text. ``value`` names it in a request, and ``id`` is part of element ids.

    The row stands for ``more`` further places. The last one is at ``address``.
    """

    id: str
    value: str
    node: str
    name: str
    address: str
    parent: str
    product: str
    type: str
    uuid: str
    types: tuple[tuple[str, str], ...]
    holders: str
    state: str
    why_not: str
    enabled: bool
    more: int = 0


class ParentChoice(msgspec.Struct, frozen=True):
    """A GPU in the filter: its value and label."""

    value: str
    label: str


def place(row: VgpuRow) -> VgpuPlaceRow:
    return VgpuPlaceRow(
        id=words.key(f"{row.node}/{row.name}"),
        value=f"{row.node}/{row.name}",
        node=words.clean(row.node),
        name=words.clean(row.name),
        address=words.clean(row.address),
        parent=words.clean(row.parent),
        product=words.clean(row.parent_product.removeprefix("NVIDIA ")),
        type=words.clean(row.type),
        uuid=words.clean(row.uuid),
        types=tuple((t, words.clean(t)) for t in row.types),
        holders=words.clean(words.listed(row.holders), 200),
        state=words.clean(row.state, 300),
        why_not=words.clean(row.why_not, 300),
        enabled=row.enabled,
    )


def table(rows: tuple[VgpuRow, ...]) -> dict[str, Any]:
    """Build the context of the table of places."""
    types: dict[str, dict[str, str]] = {}
    for row in rows:
        own = types.setdefault(words.clean(row.parent_product.removeprefix("NVIDIA ")), {})
        own.update((t, words.clean(t)) for t in row.types)
    return {
        "places": tuple(folded(rows)),
        "types": tuple((product, tuple(found.items())) for product, found in types.items() if found),
        "caps": caps(rows),
    }


def folded(rows: tuple[VgpuRow, ...]) -> Iterator[VgpuPlaceRow]:
    """Yield the rows, with equal places on which no vGPU can be created combined."""
    for (_, _, useless, _), group in groupby(rows, lambda row: (row.node, row.parent, _useless(row), row.why_not)):
        found = list(group)
        if useless and len(found) >= ALIKE:
            yield msgspec.structs.replace(place(found[0]), address=words.clean(found[-1].address), more=len(found) - 1)
        else:
            yield from map(place, found)


def _useless(row: VgpuRow) -> bool:
    return not (row.enabled or row.types or row.holders)


BACKED = re.compile(r"-\d+-\d+[A-Z]+$")
"""A MIG-backed type has its slices in its name: ``A100-1-5C``. ``A100-5C`` is time-sliced."""


def caps(rows: tuple[VgpuRow, ...]) -> tuple[str, ...]:
    """Explain empty places of GPUs whose existing vGPUs use all their capacity."""
    sentences = []
    for node, gpu in dict.fromkeys((r.node, r.parent) for r in rows):
        own = [r for r in rows if (r.node, r.parent) == (node, gpu)]
        made = [r for r in own if r.enabled]
        empty = [r for r in own if not r.enabled and r.state in ("", "free")]
        if not made or not empty or any(r.types for r in empty):
            continue
        kinds = words.listed(dict.fromkeys(words.clean(r.type) for r in made))
        taken, left = f"{words.number(len(made), 'vGPU')} ({kinds})", words.number(len(empty), "place")
        where = f"GPU {words.clean(gpu)} of {words.clean(node)}"
        if any(BACKED.search(r.type) for r in made):
            why = words.clean(empty[0].why_not, 300) or "its GPU instances are in use"
            sentences.append(
                f"{where} has {taken}. Its other {left} stay empty: {why}. A vGPU needs a GPU instance of its type's "
                "profile. To make room, create more of these on the page of the GPU."
            )
        else:
            sentences.append(
                f"{where} is full: {taken} use all its capacity. Its other {left} stay empty. That is normal, because "
                "a GPU has more places than its memory can serve. A smaller type leaves room for more."
            )
    return tuple(sentences)


async def show(visit: Visit) -> PageContent:
    virtual = visit.source.virtual
    parent = first(visit, "parent")
    selected = [r for r in virtual.vgpus if not parent or parent in (r.parent, f"{r.node}/{r.parent}")]
    found, pager = part(visit, "/vgpus", selected, MOST, lambda row: f"{row.node} {row.name} {row.address} {row.type}")
    rows = tuple(found)
    may = await refusals(visit, ("vgpus",))
    lacks = missing(virtual)
    parents = tuple(
        ParentChoice(f"{node}/{gpu}", f"{words.clean(node)}: {words.clean(product.removeprefix('NVIDIA '))}, {gpu}")
        for node, gpu, product in dict.fromkeys((r.node, r.parent, r.parent_product) for r in virtual.vgpus)
    )
    context = {**table(rows), "may": may, "missing": lacks, "all": len(virtual.vgpus), "pager": pager}
    region = Region("places", "vgpus_table.html", (rows, tuple(may.items()), lacks, pager), context)
    return PageContent("vgpus.html", "vGPUs", (region,), {"parents": parents, "parent": parent})
