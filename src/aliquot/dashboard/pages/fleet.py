"""The fleet page: totals, capacity, and one row per node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from aliquot.dashboard import formatting as words
from aliquot.dashboard.node_strips import Strip, strip
from aliquot.dashboard.page import PageContent, Region, Visit
from aliquot.dashboard.pages.fleet_summary import headline
from aliquot.dashboard.pages.node_summary import NodeSummary, capacity, summarize
from aliquot.dashboard.pages.shared import first
from aliquot.dashboard.view_models import ObservedFleet, ObservedNode

FEW = 24
"""Up to this number of rows include their pictures. With more, the browser requests those in view."""

PROBLEMS: tuple[tuple[str, str, Callable[[ObservedNode, NodeSummary], bool]], ...] = (
    ("", "all nodes", lambda view, summary: True),
    ("holes", "with holes", lambda view, summary: summary.fragmented > 0),
    ("closable", "with holes that can be closed", lambda view, summary: summary.closable > 0),
    ("drift", "with drift", lambda view, summary: bool(view.drift)),
    ("stale", "not responding", lambda view, summary: view.stale),
    ("lost", "with lost GPUs", lambda view, summary: summary.lost > 0),
    ("changing", "being changed", lambda view, summary: bool(view.changing)),
    ("idle", "with idle instances", lambda view, summary: summary.idle > 0),
    ("free", "with free memory slices", lambda view, summary: summary.free > 0),
)
"""Filters: the query parameter's value, the label and the condition."""

SORTS: tuple[tuple[str, str, Callable[[ObservedNode, NodeSummary], int]], ...] = (
    ("name", "Node", lambda view, summary: 0),
    ("instances", "Instances", lambda view, summary: -(summary.held + summary.idle)),
    ("free", "Free", lambda view, summary: -summary.free),
    ("holes", "Holes", lambda view, summary: -(summary.fragmented * 1000 + summary.stranded)),
    ("drift", "Drift", lambda view, summary: -len(view.drift)),
    ("state", "State", lambda view, summary: -(4 * view.stale + 2 * bool(summary.lost) + bool(view.changing))),
)
"""Sort orders: the query parameter's value, the column header and the key. Equal keys are sorted by name."""


class FleetRow(msgspec.Struct, frozen=True):
    """A node's row as text. ``mood`` is its colour class: ``bad``, ``odd`` or ""; ``marked`` columns are highlighted.

    ``last_seen`` is when a stale node was last read (seconds of wall time), and how long ago that is.
    It is (0, "") if the node responds or was never read.
    ``strip`` is the picture, None if the browser requests it separately.
    """

    id: str
    path: str
    name: str
    products: str
    instances: str
    free: str
    fragmentation: str
    drift: str
    state: str
    last_seen: tuple[float, str]
    mood: str
    stale: bool
    marked: tuple[str, ...]
    pictures: str
    strip: Strip | None = None


class FleetColumn(msgspec.Struct, frozen=True):
    """A column header of the table with its sort link and current order."""

    word: str
    path: str
    order: str


async def show(visit: Visit) -> PageContent:
    fleet = visit.source.fleet
    text, problem, sort = first(visit, "q").strip(), first(visit, "show"), first(visit, "sort") or "name"
    found = [(view, summarize(view)) for view in fleet.nodes]
    shown = ordered([pair for pair in found if _matches(pair, text, problem)], sort)
    few = len(shown) <= FEW
    rows = [_region(view, row, few) for view, row in shown]
    totals, sums = headline(found), capacity(fleet)
    status = {"fleet": fleet, "kind": visit.source.kind, "now": len(shown), "all": len(found), "asked": bool(problem)}
    known: dict[str, Any] = {"figures": totals, "id": "figures"}
    regions = (
        Region("status", "fleet_status.html", (*_key(fleet), len(shown), len(found)), status | {"text": text}),
        Region("figures", "fleet_figures.html", totals, known),
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
    return PageContent("fleet.html", "Fleet", regions, context)


def _key(fleet: ObservedFleet) -> tuple[object, ...]:
    return fleet.ready, fleet.error, fleet.next_step


def _matches(pair: tuple[ObservedNode, NodeSummary], text: str, problem: str) -> bool:
    view, row = pair
    is_selected = next((test for word, _, test in PROBLEMS if word == problem), None)
    if is_selected is not None and not is_selected(view, row):
        return False
    return not text or text.casefold() in f"{view.name} {row.products} {view.config} {view.error}".casefold()


def ordered(found: list[tuple[ObservedNode, NodeSummary]], sort: str) -> list[tuple[ObservedNode, NodeSummary]]:
    """Sort the rows by name, or by the key with the largest value first."""
    key = next((key for word, _, key in SORTS if word == sort), SORTS[0][2])
    return sorted(found, key=lambda pair: (key(*pair), _natural(pair[0].name)))


def _natural(name: str) -> list[tuple[str, int]]:
    """Build the sort key of a name, with ``node-2`` before ``node-10``."""
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


def _region(view: ObservedNode, row: NodeSummary, pictured: bool) -> Region:
    id = f"row-{words.key(view.name)}"
    return Region(id, "fleet_row.html", (view.revision, pictured), {"row": _row(id, view, row, pictured)})


def _row(id: str, view: ObservedNode, row: NodeSummary, pictured: bool) -> FleetRow:
    return FleetRow(
        id=id,
        path=words.path("nodes", view.name),
        name=row.shown,
        products=row.products or "never read",
        instances=f"{row.held} held, {row.idle} idle" if row.held or row.idle else "none" if row.gpus else "",
        free=_free(row),
        fragmentation=_fragmentation(row),
        drift=words.number(len(view.drift), "difference") if view.drift else "none" if view.desired else "no request",
        state=_state(view, row),
        last_seen=(view.observed_at, f"{words.span(words.now() - view.observed_at)} ago")
        if view.stale and view.observed_at
        else (0.0, ""),
        mood="bad" if view.stale or row.lost else "odd" if view.drift or row.closable or view.changing else "",
        stale=view.stale,
        marked=tuple(name for name, odd in (("holes", row.closable), ("drift", view.drift)) if odd),
        pictures=words.path("pictures", view.name),
        strip=strip(view.inventory) if pictured and view.inventory else None,
    )


def _free(row: NodeSummary) -> str:
    if row.slices or not row.gpus:
        return f"{row.free} of {row.slices} slices" if row.slices else ""
    return "MIG disabled" if row.capable else "no MIG"


def _fragmentation(row: NodeSummary) -> str:
    if not row.fragmented:
        return "none" if row.slices else ""
    left = row.fragmented - row.closable
    parts = [f"{row.closable} closable"] if row.closable else []
    return ", ".join([*parts, *([f"{left} left over"] if left else [])])


def _state(view: ObservedNode, row: NodeSummary) -> str:
    parts = []
    if view.stale:
        parts.append("not responding" if view.observed_at else "not responding, never read")
    parts += [f"{words.number(row.lost, 'GPU')} lost"] if row.lost else []
    parts += [f"being changed by {words.clean(view.changing, 60)}"] if view.changing else []
    parts += [words.clean(view.state, 40)] if view.state and not view.stale else []
    return "; ".join(parts) or "up to date"


def _columns(text: str, problem: str, sort: str) -> tuple[FleetColumn, ...]:
    def path(word: str) -> str:
        parameters = {"q": text, "show": problem, "sort": word if word != "name" else ""}
        return "/?" + words.query(parameters)

    def order(word: str) -> str:
        return "" if word != sort else "ascending" if word == "name" else "descending"

    return tuple(FleetColumn(head, path(word), order(word)) for word, head, _ in SORTS)


async def pictures(visit: Visit) -> PageContent:
    """Return a node's GPUs as a strip, for a row that was scrolled into view."""
    view = visit.source.fleet.by_name.get(visit.params["node"])
    drawn = strip(view.inventory) if view and view.inventory else None
    return PageContent("strip.html", "", context={"strip": drawn}, status=200 if view else 404)
