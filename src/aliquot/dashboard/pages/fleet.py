"""The fleet: what there is, what is free, where the holes are; one row per node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from aliquot.dashboard import formatting as words
from aliquot.dashboard.node_strips import Strip, strip
from aliquot.dashboard.page import Region, Shown, Visit
from aliquot.dashboard.pages.fleet_summary import headline
from aliquot.dashboard.pages.node_summary import Digest, capacity, digest
from aliquot.dashboard.pages.shared import first
from aliquot.dashboard.view_models import Fleet, NodeLook

FEW = 24
"""Up to so many rows come with their pictures; of more, a browser asks for those that it shows."""

PROBLEMS: tuple[tuple[str, str, Callable[[NodeLook, Digest], bool]], ...] = (
    ("", "all nodes", lambda look, d: True),
    ("holes", "with holes", lambda look, d: d.holed > 0),
    ("closable", "with holes that can be closed", lambda look, d: d.closable > 0),
    ("drift", "with drift", lambda look, d: bool(look.drift)),
    ("stale", "that do not answer", lambda look, d: look.stale),
    ("lost", "with lost GPUs", lambda look, d: d.lost > 0),
    ("changing", "being changed", lambda look, d: bool(look.changing)),
    ("idle", "with idle instances", lambda look, d: d.idle > 0),
    ("free", "with free memory slices", lambda look, d: d.free > 0),
)
"""What nodes can be shown alone: the query's word, its label, which nodes it means."""

SORTS: tuple[tuple[str, str, Callable[[NodeLook, Digest], int]], ...] = (
    ("name", "Node", lambda look, d: 0),
    ("instances", "Instances", lambda look, d: -(d.held + d.idle)),
    ("free", "Free", lambda look, d: -d.free),
    ("holes", "Holes", lambda look, d: -(d.holed * 1000 + d.stranded)),
    ("drift", "Drift", lambda look, d: -len(look.drift)),
    ("state", "State", lambda look, d: -(4 * look.stale + 2 * bool(d.lost) + bool(look.changing))),
)
"""Orders of the rows: the query's word, the column's head, the key (most first; then by name)."""


class Row(msgspec.Struct, frozen=True):
    """One node's row in words. ``mood`` colours it: ``bad``, ``odd`` or ""; ``marked`` are the columns to look at.
    ``away`` is when a node that does not answer was seen last (seconds of wall time), and how long ago; (0, "") for one
    that does, or was never seen. ``strip`` is its picture, None where the browser asks for it.
    """

    id: str
    path: str
    name: str
    products: str
    instances: str
    free: str
    holes: str
    drift: str
    state: str
    away: tuple[float, str]
    mood: str
    stale: bool
    marked: tuple[str, ...]
    pictures: str
    strip: Strip | None = None


class Column(msgspec.Struct, frozen=True):
    """A head of the table: where a click leads, and how the rows are ordered by it now."""

    word: str
    path: str
    order: str


async def show(visit: Visit) -> Shown:
    fleet = visit.source.fleet
    text, problem, sort = first(visit, "q").strip(), first(visit, "show"), first(visit, "sort") or "name"
    found = [(look, digest(look)) for look in fleet.nodes]
    shown = ordered([pair for pair in found if _matches(pair, text, problem)], sort)
    few = len(shown) <= FEW
    rows = [_region(look, row, few) for look, row in shown]
    figures, sums = headline(found), capacity(fleet)
    status = {"fleet": fleet, "kind": visit.source.kind, "now": len(shown), "all": len(found), "asked": bool(problem)}
    known: dict[str, Any] = {"figures": figures, "id": "figures"}
    regions = (
        Region("status", "fleet_status.html", (*_key(fleet), len(shown), len(found)), status | {"text": text}),
        Region("figures", "fleet_figures.html", figures, known),
        Region("capacity", "fleet_capacity.html", sums, {"sums": sums}),
        *rows,
    )
    context = {
        "rows": tuple(r.id for r in rows),
        "columns": _columns(text, problem, sort),
        "problems": tuple((word, label) for word, label, _ in PROBLEMS),
        "q": text,
        "problem": problem,
        "sort": sort,
        "empty": not found,
    }
    return Shown("fleet.html", "Fleet", regions, context)


def _key(fleet: Fleet) -> tuple[object, ...]:
    return fleet.ready, fleet.trouble, fleet.next_step


def _matches(pair: tuple[NodeLook, Digest], text: str, problem: str) -> bool:
    look, row = pair
    meant = next((test for word, _, test in PROBLEMS if word == problem), None)
    if meant is not None and not meant(look, row):
        return False
    return not text or text.casefold() in f"{look.name} {row.products} {look.config} {look.trouble}".casefold()


def ordered(found: list[tuple[NodeLook, Digest]], sort: str) -> list[tuple[NodeLook, Digest]]:
    """By name, or what has most first."""
    key = next((key for word, _, key in SORTS if word == sort), SORTS[0][2])
    return sorted(found, key=lambda pair: (key(*pair), _natural(pair[0].name)))


def _natural(name: str) -> list[tuple[str, int]]:
    """``node-2`` before ``node-10``."""
    parts: list[tuple[str, int]] = []
    word = digits = ""
    for c in name.casefold():
        if c.isascii() and c.isdigit():
            digits += c
            continue
        if digits:
            parts.append((word, int(digits[:18])))
            word = digits = ""
        word += c
    return [*parts, (word, int(digits[:18]) if digits else -1)]


def _region(look: NodeLook, row: Digest, pictured: bool) -> Region:
    id = f"row-{words.key(look.name)}"
    return Region(id, "fleet_row.html", (look.revision, pictured), {"row": _row(id, look, row, pictured)})


def _row(id: str, look: NodeLook, row: Digest, pictured: bool) -> Row:
    return Row(
        id=id,
        path=words.path("nodes", look.name),
        name=row.shown,
        products=row.products or "never read",
        instances=f"{row.held} held, {row.idle} idle" if row.held or row.idle else "none" if row.gpus else "",
        free=_free(row),
        holes=_holes(row),
        drift=f"{len(look.drift)} not as asked" if look.drift else "none" if look.wish else "not asked",
        state=_state(look, row),
        away=(look.seen, f"{words.span(words.now() - look.seen)} ago") if look.stale and look.seen else (0.0, ""),
        mood="bad" if look.stale or row.lost else "odd" if look.drift or row.closable or look.changing else "",
        stale=look.stale,
        marked=tuple(name for name, here in (("holes", row.closable), ("drift", look.drift)) if here),
        pictures=words.path("pictures", look.name),
        strip=strip(look.inventory) if pictured and look.inventory else None,
    )


def _free(row: Digest) -> str:
    if row.slices or not row.gpus:
        return f"{row.free} of {row.slices} slices" if row.slices else ""
    return "MIG off" if row.capable else "no MIG"


def _holes(row: Digest) -> str:
    if not row.holed:
        return "none" if row.slices else ""
    left = row.holed - row.closable
    parts = [f"{row.closable} to close"] if row.closable else []
    return ", ".join([*parts, *([f"{left} left over"] if left else [])])


def _state(look: NodeLook, row: Digest) -> str:
    said = []
    if look.stale:
        said.append("does not answer" if look.seen else "does not answer, never seen")
    said += [f"{words.number(row.lost, 'GPU')} lost"] if row.lost else []
    said += [f"changed by {words.clean(look.changing, 60)}"] if look.changing else []
    said += [words.clean(look.state, 40)] if look.state and not look.stale else []
    return "; ".join(said) or "fresh"


def _columns(text: str, problem: str, sort: str) -> tuple[Column, ...]:
    def path(word: str) -> str:
        asked = {"q": text, "show": problem, "sort": word if word != "name" else ""}
        return "/?" + words.query(asked)

    def order(word: str) -> str:
        return "" if word != sort else "ascending" if word == "name" else "descending"

    return tuple(Column(head, path(word), order(word)) for word, head, _ in SORTS)


async def pictures(visit: Visit) -> Shown:
    """A node's GPUs as a strip, for a row that has come into view."""
    look = visit.source.fleet.by_name.get(visit.params["node"])
    drawn = strip(look.inventory) if look and look.inventory else None
    return Shown("strip.html", "", context={"strip": drawn}, status=200 if look else 404)
