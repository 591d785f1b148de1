"""All looks of a source and their revision, on one event loop. Whoever waits for news is told when something moved."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import msgspec

from aliquot.dashboard.local.node_views import same
from aliquot.dashboard.view_models import Fleet, NodeLook, Virtual

replace = msgspec.structs.replace
_NAMED = 6
"""Nodes that a sentence names."""


class Board:
    """``fleet`` and ``virtual`` answer from the last looks. ``rows`` of a node are made beside its look, in the thread
    that took it: here they are only put together.
    """

    def __init__(self) -> None:
        self.fleet = Fleet()
        self.watchers = 0
        self._looks: dict[str, NodeLook] = {}
        self._rows: dict[str, Virtual] = {}
        self._busy: dict[str, list[str]] = {}
        self._news = asyncio.Event()
        self._arrived = asyncio.Event()
        self._together: tuple[int, Virtual] = (-1, Virtual())

    # -- writing

    def show(self, looks: Iterable[tuple[NodeLook, Virtual | None]], gone: Iterable[str] = ()) -> None:
        """Takes new looks over, each with its rows (None: as they were), and forgets nodes. The revision moves where
        something shown did. Of two readings under way the one that began later is right, whichever comes first.
        """
        moved = False
        revision = self.fleet.revision + 1
        for look, rows in looks:
            former = self._looks.get(look.name)
            if former is not None and look.begun < former.begun:
                continue
            ours = self._busy.get(look.name)
            look = replace(look, changing=ours[0] if ours else look.changing)
            if former is not None and same(former, look):
                look = replace(look, revision=former.revision)
            else:
                look, moved = replace(look, revision=revision), True
            self._looks[look.name] = look
            if rows is not None:
                self._rows[look.name] = rows
        for name in gone:
            moved = self._looks.pop(name, None) is not None or moved
            self._rows.pop(name, None)
        self._publish(moved)

    def state(self, *, ready: bool | None = None, trouble: str = "", next_step: str = "") -> None:
        """What is true of the source as a whole."""
        fleet = self.fleet
        ready = fleet.ready if ready is None else ready
        if (ready, trouble, next_step) != (fleet.ready, fleet.trouble, fleet.next_step):
            self.fleet = replace(fleet, ready=ready, trouble=trouble, next_step=next_step)
            self._publish(True)

    def begin(self, node: str, who: str) -> None:
        """Somebody of this page changes a node."""
        self._busy.setdefault(node, []).append(who)
        self._mark(node)

    def end(self, node: str, who: str) -> None:
        """No longer."""
        self._busy[node].remove(who)
        self._mark(node)

    def _mark(self, node: str) -> None:
        if node in self._looks:
            self.show([(replace(self._looks[node], changing=""), None)])

    def moved(self) -> None:
        """Something beside the looks is shown otherwise."""
        self._publish(True)

    def _publish(self, moved: bool) -> None:
        """A look that shows the same but is newer is taken over too: its age is told from it."""
        looks = tuple(self._looks[name] for name in sorted(self._looks))
        self.fleet = replace(self.fleet, nodes=looks, revision=self.fleet.revision + moved)
        if moved:
            self._news.set()
            self._news = asyncio.Event()

    # -- reading

    def look(self, node: str) -> NodeLook:
        """The last look; an empty one of a node that was never looked at."""
        return self._looks.get(node) or NodeLook(node)

    @property
    def names(self) -> set[str]:
        return set(self._looks)

    @property
    def virtual(self) -> Virtual:
        revision, found = self._together
        if revision != self.fleet.revision:
            found = _together((name, self._rows[name]) for name in sorted(self._rows))
            self._together = (self.fleet.revision, found)
        return found

    async def changed(self, since: int) -> None:
        """Returns once the revision is another. Whoever waits looks at it: looks are taken more often then."""
        self.watchers += 1
        self._arrived.set()
        try:
            while self.fleet.revision == since:
                await self._news.wait()
        finally:
            self.watchers -= 1

    async def pause(self, watched_s: float, alone_s: float) -> None:
        """Waits until it is time for a new look: soon while somebody watches, or at once when the first one comes."""
        self._arrived.clear()
        if self.watchers:
            await asyncio.sleep(watched_s)
            return
        try:
            await asyncio.wait_for(self._arrived.wait(), alone_s)
        except TimeoutError:
            return


def _together(every: Iterable[tuple[str, Virtual]]) -> Virtual:
    named = list(every)
    parts = [part for _, part in named]
    lacking: dict[str, list[str]] = {}
    for name, part in named:
        for sentence in part.missing:
            lacking.setdefault(sentence, []).append(name)
    return Virtual(
        sriov=tuple(r for p in parts for r in p.sriov),
        vgpus=tuple(r for p in parts for r in p.vgpus),
        migs=tuple(r for p in parts for r in p.migs),
        machines=tuple(r for p in parts for r in p.machines),
        missing=tuple(m if len(named) == 1 else f"{_listed(names)}: {m}" for m, names in lacking.items()),
    )


def _listed(names: list[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
