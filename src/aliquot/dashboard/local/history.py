"""Past changes of nodes, from their journals."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from aliquot.core.engine.history import Past, pasts
from aliquot.dashboard.local.node_access import Spot
from aliquot.dashboard.view_models import Change
from aliquot.errors import StorageError
from aliquot.foundation import lock

_TITLES = {"": "A change of {gpus}", "the record": "What was asked last, again, of {gpus}"}
_WITHOUT = {"": "A change that reached no GPU", "the record": "What was asked last, again"}


def changes(spots: Sequence[Spot], most: int, busy: Collection[str]) -> tuple[Change, ...]:
    """The newest ``most`` changes of some nodes. ``busy`` are the names of nodes that somebody changes just now."""
    found: list[Change] = []
    for spot in spots:
        try:
            records = spot.records()
        except StorageError as error:
            found.append(Change(spot.name, 0, 0, "", "Its journal cannot be read", "unknown", (), error.brief))
            continue
        runs = pasts(records, running=spot.name in busy, since=lock.since(spot.lock))
        found += [change(spot.name, each) for each in runs[:most]]
    return tuple(sorted(found, key=lambda c: -c.at)[:most])


def change(node: str, past: Past) -> Change:
    """One run in the page's words."""
    gpus = f"GPU {past.gpus[0]}" if len(past.gpus) == 1 else f"{len(past.gpus)} GPUs"
    title = _TITLES[past.name].format(gpus=gpus) if past.name in _TITLES else f"{past.name}, on {gpus}"
    if not past.gpus:
        title = _WITHOUT.get(past.name, past.name)
    title = past.acts[0] if len(past.acts) == 1 and not past.name else _counted(title, past.figures)
    back = tuple(f"taken back: {line}" for line in past.back)
    return Change(
        node=node,
        at=past.at,
        ended=past.ended,
        by=past.by,
        title=title,
        outcome=past.outcome,
        acts=(*past.acts, *back),
        sentence=past.why,
    )


def _counted(title: str, figures: str) -> str:
    return f"{title}: {figures}" if figures else title
