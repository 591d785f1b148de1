"""Helpers of several pages: parameters, paging, permissions, and the page for missing objects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from aliquot.core.model.inventory import Gpu, Inventory
from aliquot.dashboard import formatting as words
from aliquot.dashboard.page import PageContent, Visit
from aliquot.dashboard.view_models import ObservedNode, Person, VirtualizationView
from aliquot.foundation.decimals import decimal


class Crumb(msgspec.Struct, frozen=True):
    """A breadcrumb: a parent page."""

    word: str
    path: str


class Pager(msgspec.Struct, frozen=True):
    """The range of the shown rows, and the paths of the previous and next page ("" if there is none)."""

    words: str = ""
    before: str = ""
    after: str = ""


class Freshness(msgspec.Struct, frozen=True):
    """The age of a node's observation as text. ``at`` is when it was read (seconds of wall time)."""

    error: str = ""
    next_step: str = ""
    changing: str = ""
    ago: str = ""
    at: int = 0
    observed: str = ""
    observed_iso: str = ""


FLEET = Crumb("Fleet", "/")
FEW = 12
"""With more rows than this, the page has a search field."""


def first(visit: Visit, name: str) -> str:
    """Return the first value of a query parameter, "" if it is missing."""
    return next(iter(visit.query.get(name, ())), "")


Row = TypeVar("Row")


def part(
    visit: Visit, path: str, rows: Sequence[Row], most: int, name: Callable[[Row], str]
) -> tuple[list[Row], Pager]:
    """Return one page of the rows whose name contains the query parameter ``q``.

    The page has ``most`` rows and starts at the parameter ``from``.
    """
    text, start = first(visit, "q").strip(), first(visit, "from")
    found = [row for row in rows if text.casefold() in name(row).casefold()]
    at = decimal(start) or 0
    at = at if at < len(found) else 0

    def link(to: int) -> str:
        parameters = {key: first(visit, key) for key in visit.query if key != "from"}
        return f"{path}?" + words.query({**parameters, "from": str(to)})

    before = link(max(0, at - most)) if at else ""
    after = link(at + most) if at + most < len(found) else ""
    range_text = f"{at + 1} to {min(at + most, len(found))} of {len(found)}" if before or after else ""
    return found[at : at + most], Pager(range_text, before, after)


def freshness(view: ObservedNode) -> Freshness:
    ago = words.span(words.now() - view.observed_at) if view.observed_at else ""
    return Freshness(
        words.clean(view.error, 400),
        words.clean(view.next_step, 400),
        words.clean(view.changing, 200),
        ago,
        int(view.observed_at),
        words.moment(view.observed_at),
        words.iso_moment(view.observed_at),
    )


async def refusals(visit: Visit, tags: Sequence[str], view: ObservedNode | None = None) -> dict[str, str]:
    """Return why the user cannot make each kind of change now, "" if permitted."""
    if view is not None and view.stale:
        return dict.fromkeys(tags, "The node cannot be read now. Changes can be planned when it responds again.")
    return {tag: await refusal(visit, visit.who, tag) for tag in tags}


async def refusal(visit: Visit, who: Person, tag: str) -> str:
    if who.reads_only:
        return "You have read-only access."
    return words.clean(await visit.source.may(who, tag), 400)


def gpu_at(view: ObservedNode, pci: str) -> tuple[Inventory, Gpu] | None:
    """Return the GPU at a PCI address, as last observed."""
    inventory = view.inventory
    gpu = next((g for g in inventory.gpus if g.pci == pci), None) if inventory else None
    return (inventory, gpu) if inventory and gpu else None


def absent(visit: Visit, what: str, name: str, back: Crumb) -> PageContent:
    """Build the page for a missing object.

    Until all nodes were read once, the object may still exist. Then the page says so and reloads by itself.
    """
    looking = not visit.source.fleet.ready and not visit.source.fleet.error
    return PageContent(
        template="absent.html",
        title="Loading" if looking else f"{what[:1].upper()}{what[1:]} not found",
        context={"what": what, "name": words.clean(name), "back": back, "looking": looking},
        status=202 if looking else 404,
    )


def missing(virtual: VirtualizationView) -> tuple[str, ...]:
    """Return the missing requirements for VMs."""
    return sentences(virtual.missing)


def sentences(found: Sequence[str]) -> tuple[str, ...]:
    return tuple(words.clean(sentence, 600) for sentence in found)
