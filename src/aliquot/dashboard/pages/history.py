"""The history page: past changes, their users and outcomes."""

from __future__ import annotations

import msgspec

from aliquot.core.engine.history import PastOutcome
from aliquot.dashboard import formatting as words
from aliquot.dashboard.page import PageContent, Region, Visit
from aliquot.dashboard.pages.shared import first
from aliquot.dashboard.view_models import PastChange

ENDS: dict[PastOutcome, tuple[str, str]] = {
    "done": ("done", "good"),
    "nothing": ("nothing to do", ""),
    "reboot": ("needs a reboot", "odd"),
    "undone": ("failed and reverted", "odd"),
    "stopped": ("stopped by a signal and reverted", "odd"),
    "partial": ("failed, partly reverted", "bad"),
    "refused": ("refused, nothing changed", "odd"),
    "cut off": ("interrupted", "bad"),
}
"""Label and colour class of each outcome."""


class HistoryRow(msgspec.Struct, frozen=True):
    """A past change as text."""

    id: str
    node: str
    path: str
    at: str
    at_iso: str
    took: str
    by: str
    title: str
    outcome: str
    mood: str
    actions: tuple[str, ...]
    sentence: str


def history_row(change: PastChange, number: int) -> HistoryRow:
    outcome, mood = ENDS.get(change.outcome, (words.clean(change.outcome), ""))
    return HistoryRow(
        id=f"change-{number}",
        node=words.clean(change.node),
        path=words.path("nodes", change.node),
        at=words.moment(change.at) or "at an unknown time",
        at_iso=words.iso_moment(change.at),
        took=words.took(change.ended - change.at) if change.at and change.ended >= change.at else "",
        by=words.clean(change.by) or "unknown",
        title=words.clean(change.title, 300),
        outcome=outcome,
        mood=mood,
        actions=tuple(words.clean(action, 300) for action in change.actions),
        sentence=words.clean(change.sentence, 600),
    )


async def show(visit: Visit) -> PageContent:
    node = first(visit, "node")
    found = await visit.source.history(node or None)
    rows = tuple(history_row(change, n) for n, change in enumerate(found))
    shown = words.clean(node)
    fleet = visit.source.fleet
    gone = bool(node) and fleet.ready and node not in fleet.by_name
    region = Region("changes", "history_rows.html", (found, gone), {"rows": rows, "node": shown, "gone": gone})
    nodes = tuple((view.name, words.clean(view.name)) for view in fleet.nodes[:1000])
    return PageContent("history.html", "History", (region,), {"node": node, "shown": shown, "nodes": nodes})
