"""What several pages need: the node that is looked at, what this person may change, the page for what is not there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from aliquot.core.model.inventory import Gpu, Inventory
from aliquot.dashboard import formatting as words
from aliquot.dashboard.page import Shown, Visit
from aliquot.dashboard.view_models import NodeLook, Person, Virtual
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


class Standing(msgspec.Struct, frozen=True):
    """How fresh a node's look is, in words. ``at`` is when it was read (seconds of wall time), ``seen`` that as people
    and as machines write it.
    """

    trouble: str = ""
    next_step: str = ""
    changing: str = ""
    ago: str = ""
    at: int = 0
    seen: str = ""
    seen_machine: str = ""


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

    def way(to: int) -> str:
        kept = {key: first(visit, key) for key in visit.query if key != "from"}
        return f"{path}?" + words.query({**kept, "from": str(to)})

    before = way(max(0, at - most)) if at else ""
    after = way(at + most) if at + most < len(found) else ""
    said = f"{at + 1} to {min(at + most, len(found))} of {len(found)}" if before or after else ""
    return found[at : at + most], Pager(said, before, after)


def standing(look: NodeLook) -> Standing:
    ago = words.span(words.now() - look.seen) if look.seen else ""
    return Standing(
        words.clean(look.trouble, 400),
        words.clean(look.next_step, 400),
        words.clean(look.changing, 200),
        ago,
        int(look.seen),
        words.moment(look.seen),
        words.machine_moment(look.seen),
    )


async def refusals(visit: Visit, tags: Sequence[str], look: NodeLook | None = None) -> dict[str, str]:
    """Why this person cannot change things of each kind now, "" where they can."""
    if look is not None and look.stale:
        return dict.fromkeys(tags, "The node cannot be read just now: nothing can be planned until it answers again.")
    return {tag: await refusal(visit, visit.who, tag) for tag in tags}


async def refusal(visit: Visit, who: Person, tag: str) -> str:
    if who.reads_only:
        return "You may look, not change."
    return words.clean(await visit.source.may(who, tag), 400)


def gpu_at(look: NodeLook, pci: str) -> tuple[Inventory, Gpu] | None:
    """The GPU at an address, as it was last seen."""
    inventory = look.inventory
    gpu = next((g for g in inventory.gpus if g.pci == pci), None) if inventory else None
    return (inventory, gpu) if inventory and gpu else None


def absent(visit: Visit, what: str, name: str, back: Crumb) -> Shown:
    """The page for something that is not there, or not there any more. Before everything was looked at once nobody
    knows that: the page says so, and asks again by itself.
    """
    looking = not visit.source.fleet.ready and not visit.source.fleet.trouble
    return Shown(
        template="absent.html",
        title="Still looking" if looking else f"No such {what}",
        context={"what": what, "name": words.clean(name), "back": back, "looking": looking},
        status=202 if looking else 404,
    )


def missing(virtual: Virtual) -> tuple[str, ...]:
    """What must be there for virtual machines and is not."""
    return sentences(virtual.missing)


def sentences(found: Sequence[str]) -> tuple[str, ...]:
    return tuple(words.clean(sentence, 600) for sentence in found)
