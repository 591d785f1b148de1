"""What several pages need: the node that is looked at, what this person may change, the page for what is not there."""

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
    """A step on the way from the fleet to a page."""

    word: str
    path: str


class Pager(msgspec.Struct, frozen=True):
    """Which rows of how many are shown, and the ways to the others ("" for none)."""

    words: str = ""
    before: str = ""
    after: str = ""


class Freshness(msgspec.Struct, frozen=True):
    """How fresh a node's look is, in words. ``at`` is when it was read (seconds of wall time), ``observed`` that as
    people and as machines write it.
    """

    error: str = ""
    next_step: str = ""
    changing: str = ""
    ago: str = ""
    at: int = 0
    observed: str = ""
    observed_iso: str = ""


FLEET = Crumb("Fleet", "/")
FEW = 12
"""More rows than this can be searched."""


def first(visit: Visit, name: str) -> str:
    """The value of a query parameter, "" without one."""
    return next(iter(visit.query.get(name, ())), "")


Row = TypeVar("Row")


def part(
    visit: Visit, path: str, rows: Sequence[Row], most: int, name: Callable[[Row], str]
) -> tuple[list[Row], Pager]:
    """The rows whose name has the query's ``q`` in it, ``most`` of them from ``from`` on."""
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
    """Why this person cannot change things of each kind now, "" where they can."""
    if view is not None and view.stale:
        return dict.fromkeys(tags, "The node cannot be read just now: nothing can be planned until it answers again.")
    return {tag: await refusal(visit, visit.who, tag) for tag in tags}


async def refusal(visit: Visit, who: Person, tag: str) -> str:
    if who.reads_only:
        return "You may look, not change."
    return words.clean(await visit.source.may(who, tag), 400)


def gpu_at(view: ObservedNode, pci: str) -> tuple[Inventory, Gpu] | None:
    """The GPU at an address, as it was last seen."""
    inventory = view.inventory
    gpu = next((g for g in inventory.gpus if g.pci == pci), None) if inventory else None
    return (inventory, gpu) if inventory and gpu else None


def absent(visit: Visit, what: str, name: str, back: Crumb) -> PageContent:
    """The page for something that is not there, or not there any more. Before everything was looked at once nobody
    knows that: the page says so, and asks again by itself.
    """
    looking = not visit.source.fleet.ready and not visit.source.fleet.error
    return PageContent(
        template="absent.html",
        title="Still looking" if looking else f"No such {what}",
        context={"what": what, "name": words.clean(name), "back": back, "looking": looking},
        status=202 if looking else 404,
    )


def missing(virtual: VirtualizationView) -> tuple[str, ...]:
    """What must be there for virtual machines and is not."""
    return sentences(virtual.missing)


def sentences(found: Sequence[str]) -> tuple[str, ...]:
    return tuple(words.clean(sentence, 600) for sentence in found)
