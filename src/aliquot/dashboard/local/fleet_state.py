"""All looks of a source and their revision, on one event loop. Whoever waits for news is told when something moved."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import msgspec

from aliquot.dashboard.local.node_views import same
from aliquot.dashboard.view_models import ObservedFleet, ObservedNode, VirtualizationView

replace = msgspec.structs.replace
_NAMED = 6
"""Nodes that a sentence names."""


class FleetState:
    """``fleet`` and ``virtual`` answer from the last looks. ``rows`` of a node are made beside its look, in the thread
    that took it: here they are only put together.
    """

    def __init__(self) -> None:
        self.fleet = ObservedFleet()
        self.watchers = 0
        self._nodes: dict[str, ObservedNode] = {}
        self._rows: dict[str, VirtualizationView] = {}
        self._busy: dict[str, list[str]] = {}
        self._news = asyncio.Event()
        self._arrived = asyncio.Event()
        self._merged: tuple[int, VirtualizationView] = (-1, VirtualizationView())

    # -- writing

    def update(
        self, nodes: Iterable[tuple[ObservedNode, VirtualizationView | None]], removed: Iterable[str] = ()
    ) -> None:
        """Takes new looks over, each with its rows (None: as they were), and forgets nodes. The revision moves where
        something shown did. Of two readings under way the one that began later is right, whichever comes first.
        """
        moved = False
        revision = self.fleet.revision + 1
        for node, rows in nodes:
            previous = self._nodes.get(node.name)
            if previous is not None and node.begun < previous.begun:
                continue
            own_changes = self._busy.get(node.name)
            node = replace(node, changing=own_changes[0] if own_changes else node.changing)
            if previous is not None and same(previous, node):
                node = replace(node, revision=previous.revision)
            else:
                node, moved = replace(node, revision=revision), True
            self._nodes[node.name] = node
            if rows is not None:
                self._rows[node.name] = rows
        for name in removed:
            moved = self._nodes.pop(name, None) is not None or moved
            self._rows.pop(name, None)
        self._publish(moved)

    def set_status(self, *, ready: bool | None = None, error: str = "", next_step: str = "") -> None:
        """What is true of the source as a whole."""
        fleet = self.fleet
        ready = fleet.ready if ready is None else ready
        if (ready, error, next_step) != (fleet.ready, fleet.error, fleet.next_step):
            self.fleet = replace(fleet, ready=ready, error=error, next_step=next_step)
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
        if node in self._nodes:
            self.update([(replace(self._nodes[node], changing=""), None)])

    def mark_changed(self) -> None:
        """Something beside the looks is shown otherwise."""
        self._publish(True)

    def _publish(self, moved: bool) -> None:
        """A look that shows the same but is newer is taken over too: its age is told from it."""
        nodes = tuple(self._nodes[name] for name in sorted(self._nodes))
        self.fleet = replace(self.fleet, nodes=nodes, revision=self.fleet.revision + moved)
        if moved:
            self._news.set()
            self._news = asyncio.Event()

    # -- reading

    def node_view(self, node: str) -> ObservedNode:
        """The last look; an empty one of a node that was never looked at."""
        return self._nodes.get(node) or ObservedNode(node)

    @property
    def names(self) -> set[str]:
        return set(self._nodes)

    @property
    def virtual(self) -> VirtualizationView:
        revision, found = self._merged
        if revision != self.fleet.revision:
            found = _merge((name, self._rows[name]) for name in sorted(self._rows))
            self._merged = (self.fleet.revision, found)
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

    async def pause(self, watched_s: float, unwatched_s: float) -> None:
        """Waits until it is time for a new look: soon while somebody watches, or at once when the first one comes."""
        self._arrived.clear()
        if self.watchers:
            await asyncio.sleep(watched_s)
            return
        try:
            await asyncio.wait_for(self._arrived.wait(), unwatched_s)
        except TimeoutError:
            return


def _merge(every: Iterable[tuple[str, VirtualizationView]]) -> VirtualizationView:
    named = list(every)
    parts = [part for _, part in named]
    lacking: dict[str, list[str]] = {}
    for name, part in named:
        for sentence in part.missing:
            lacking.setdefault(sentence, []).append(name)
    return VirtualizationView(
        sriov=tuple(r for p in parts for r in p.sriov),
        vgpus=tuple(r for p in parts for r in p.vgpus),
        migs=tuple(r for p in parts for r in p.migs),
        vms=tuple(r for p in parts for r in p.vms),
        missing=tuple(m if len(named) == 1 else f"{_listed(names)}: {m}" for m, names in lacking.items()),
    )


def _listed(names: list[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
