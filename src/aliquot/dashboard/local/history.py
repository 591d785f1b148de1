"""Past changes of nodes, from their journals."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from aliquot.core.engine.history import PastRun, past_runs
from aliquot.dashboard.local.node_access import NodeAccess
from aliquot.dashboard.view_models import PastChange
from aliquot.errors import StorageError
from aliquot.foundation import lock

_TITLES = {"": "A change of {gpus}", "the record": "Last request applied again to {gpus}"}
_WITHOUT = {"": "A change that reached no GPU", "the record": "Last request applied again"}


def changes(accesses: Sequence[NodeAccess], most: int, busy: Collection[str]) -> tuple[PastChange, ...]:
    """Return the newest ``most`` changes of some nodes. ``busy`` are the names of nodes being changed now."""
    found: list[PastChange] = []
    for access in accesses:
        try:
            entries = access.journal_entries()
        except StorageError as error:
            found.append(PastChange(access.name, 0, 0, "", "The journal cannot be read", "unknown", (), error.brief))
            continue
        runs = past_runs(entries, running=access.name in busy, since=lock.since(access.lock))
        found += [change(access.name, each) for each in runs[:most]]
    return tuple(sorted(found, key=lambda c: -c.at)[:most])


def change(node: str, past: PastRun) -> PastChange:
    """Describe one run for the page."""
    gpus = f"GPU {past.gpus[0]}" if len(past.gpus) == 1 else f"{len(past.gpus)} GPUs"
    title = _TITLES[past.name].format(gpus=gpus) if past.name in _TITLES else f"{past.name} on {gpus}"
    if not past.gpus:
        title = _WITHOUT.get(past.name, past.name)
    title = past.actions[0] if len(past.actions) == 1 and not past.name else _counted(title, past.totals)
    back = tuple(f"reverted: {line}" for line in past.undone)
    return PastChange(
        node=node,
        at=past.at,
        ended=past.ended,
        by=past.by,
        title=title,
        outcome=past.outcome,
        actions=(*past.actions, *back),
        sentence=past.failure,
    )


def _counted(title: str, totals: str) -> str:
    return f"{title}: {totals}" if totals else title
