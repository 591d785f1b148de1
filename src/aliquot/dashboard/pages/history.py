"""What was done in the past, by whom, and how it ended."""

from __future__ import annotations

import msgspec

from aliquot.dashboard import formatting as words
from aliquot.dashboard.page import Region, Shown, Visit
from aliquot.dashboard.pages.shared import first
from aliquot.dashboard.view_models import Change

ENDS = {
    "done": ("done", "good"),
    "nothing": ("nothing to do", ""),
    "reboot": ("waits for a reboot", "odd"),
    "undone": ("failed, and undone", "odd"),
    "stopped": ("stopped by a signal, and undone", "odd"),
    "partial": ("failed, not all undone", "bad"),
    "refused": ("refused, nothing touched", "odd"),
    "cut off": ("cut off", "bad"),
}
"""How a change ended: its words, and its colour."""


class Past(msgspec.Struct, frozen=True):
    """One change in words."""

    id: str
    node: str
    path: str
    at: str
    at_machine: str
    took: str
    by: str
    title: str
    outcome: str
    mood: str
    acts: tuple[str, ...]
    sentence: str


def past(change: Change, n: int) -> Past:
    outcome, mood = ENDS.get(change.outcome, (words.clean(change.outcome), ""))
    return Past(
        id=f"change-{n}",
        node=words.clean(change.node),
        path=words.path("nodes", change.node),
        at=words.moment(change.at) or "at an unknown time",
        at_machine=words.machine_moment(change.at),
        took=words.took(change.ended - change.at) if change.at and change.ended >= change.at else "",
        by=words.clean(change.by) or "unknown",
        title=words.clean(change.title, 300),
        outcome=outcome,
        mood=mood,
        acts=tuple(words.clean(act, 300) for act in change.acts),
        sentence=words.clean(change.sentence, 600),
    )


async def show(visit: Visit) -> Shown:
    node = first(visit, "node")
    found = await visit.source.history(node or None)
    rows = tuple(past(change, n) for n, change in enumerate(found))
    shown = words.clean(node)
    fleet = visit.source.fleet
    gone = bool(node) and fleet.ready and node not in fleet.by_name
    region = Region("changes", "history_rows.html", (found, gone), {"rows": rows, "node": shown, "gone": gone})
    nodes = tuple((look.name, words.clean(look.name)) for look in fleet.nodes[:1000])
    return Shown("history.html", "History", (region,), {"node": node, "shown": shown, "nodes": nodes})
