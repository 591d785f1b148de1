"""The observed state of all nodes and its revision, on one event loop. Waiting tasks are woken when it changes."""

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
    """The last observations of all nodes.

    The VM rows of a node are built in the thread that observed it, and only merged here.
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
        """Store new observations, each with its rows (None: unchanged), and remove nodes.

        The revision increases if anything shown changed.
        Of two concurrent observations, the one that began later wins, in any order of arrival.
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
        """Set the status of the source as a whole."""
        fleet = self.fleet
        ready = fleet.ready if ready is None else ready
        if (ready, error, next_step) != (fleet.ready, fleet.error, fleet.next_step):
            self.fleet = replace(fleet, ready=ready, error=error, next_step=next_step)
            self._publish(True)

    def begin(self, node: str, who: str) -> None:
        """Mark a node as being changed by a user of this dashboard."""
        self._busy.setdefault(node, []).append(who)
        self._mark(node)

    def end(self, node: str, who: str) -> None:
        """Remove the mark that ``begin`` set."""
        self._busy[node].remove(who)
        self._mark(node)

    def _mark(self, node: str) -> None:
        if node in self._nodes:
            self.update([(replace(self._nodes[node], changing=""), None)])

    def mark_changed(self) -> None:
        """Increase the revision: something shown besides the observations changed."""
        self._publish(True)

    def _publish(self, moved: bool) -> None:
        """Publish the nodes. An equal but newer observation is published too, because its age is shown."""
        nodes = tuple(self._nodes[name] for name in sorted(self._nodes))
        self.fleet = replace(self.fleet, nodes=nodes, revision=self.fleet.revision + moved)
        if moved:
            self._news.set()
            self._news = asyncio.Event()

    # -- reading

    def node_view(self, node: str) -> ObservedNode:
        """Return the last observation, an empty one if the node was never observed."""
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
        """Wait until the revision differs from ``since``. Nodes are observed more often while a task waits here."""
        self.watchers += 1
        self._arrived.set()
        try:
            while self.fleet.revision == since:
                await self._news.wait()
        finally:
            self.watchers -= 1

    async def pause(self, watched_s: float, unwatched_s: float) -> None:
        """Wait until the next observation is due: sooner while pages are open, at once when the first page opens."""
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
