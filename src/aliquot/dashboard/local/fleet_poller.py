"""Poller of all simulated nodes of a state directory.

The server that hosts the nodes reports which nodes changed, and only these are read.
One long-poll request covers all nodes; the server answers when a node changed.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from aliquot.dashboard.local import node_views as views
from aliquot.dashboard.local.file_watch import FileWatch
from aliquot.dashboard.local.fleet_state import FleetState
from aliquot.dashboard.local.node_access import NodeAccess, NodeObservation
from aliquot.dashboard.local.poll_node import PolledNode, poll
from aliquot.dashboard.local.shared_cache import SharedCache
from aliquot.dashboard.local.worker_threads import Threads
from aliquot.errors import AliquotError, DriverHangsError
from aliquot.sim import lifecycle as control

if TYPE_CHECKING:
    from aliquot.core.model.inventory import Inventory
    from aliquot.core.model.usage import Usage
    from aliquot.node.connect import Connection
    from aliquot.node.usage_tracker import UsageTracker

BATCH = 32
"""Nodes that are read before they are shown together. The page fills up while the others are read."""

WAIT_S = 5.0
"""How long one request to the server may wait for changes."""

EMPTY_S = 1.0
"""How often a directory without nodes is checked. Without nodes, no server runs that could report changes."""


FILES_S = 2.0
FILES_UNWATCHED_S = 20.0
"""How often locks and recorded requests are checked, with and without open pages."""


class FleetPoller:
    """See ``source.Poller``."""

    def __init__(self, state_dir: str, state: FleetState) -> None:
        self._state_dir = state_dir
        self._state = state
        self._threads = Threads(4, "look")
        self._accesses: dict[str, NodeAccess] = {}
        self._file_watch = FileWatch()
        self._cache = SharedCache()
        self._since = ""
        self._watches: dict[str, UsageTracker] = {}

    def access(self, node: str) -> NodeAccess | None:
        found = self._accesses.get(node)
        if found is None and control.node_exists(self._state_dir, node):
            found = self._accesses[node] = NodeAccess(node, self._state_dir, self._cache)
        return found

    def accesses(self) -> Iterable[NodeAccess]:
        return tuple(self._accesses.values())

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._follow_changes())
                group.create_task(self._watch_files())
        finally:
            self._threads.close()

    async def _follow_changes(self) -> None:
        while True:
            try:
                await self._poll_changes()
            except (AliquotError, OSError) as error:
                brief = error.brief if isinstance(error, AliquotError) else f"{self._state_dir}: {error}"
                step = error.next_step if isinstance(error, AliquotError) else None
                self._state.set_status(error=brief, next_step=step or "")
                await asyncio.sleep(EMPTY_S)

    async def _watch_files(self) -> None:
        while True:
            await self._state.pause(FILES_S, FILES_UNWATCHED_S)
            accesses = [access for access in self.accesses() if access.name in self._state.names]
            await self._read(await self._threads.run(lambda watched=accesses: self._file_watch.changed(watched)))  # type: ignore[misc]

    async def _poll_changes(self) -> None:
        """Request the changed nodes once, and read them. Raises AliquotError if the server does not answer."""
        news = await self._threads.run(lambda: control.changes(self._state_dir, self._since, WAIT_S), self._state_dir)
        if news is None:  # the directory has no nodes, and no server runs
            self._forget(set(self._accesses))
            self._since = ""
            self._state.set_status(ready=True)
            await asyncio.sleep(EMPTY_S)
            return
        if news.names is not None:
            self._forget(set(self._accesses) - set(news.names))
        await self._read(sorted(news.changed))
        self._since = news.since
        self._state.set_status(ready=True)

    def _forget(self, removed: set[str]) -> None:
        for name in removed:
            self._accesses.pop(name, None)
            self._file_watch.forget(name)
            self._watches.pop(name, None)
        if removed:
            self._state.update((), removed)

    async def _read(self, names: Sequence[str]) -> None:
        for start in range(0, len(names), BATCH):
            batch = [self.access(name) for name in names[start : start + BATCH]]
            present = [access for access in batch if access is not None]
            polled = await asyncio.gather(*map(self._poll, present))
            self._state.update([each for each in polled if os.path.isdir(self._folder(each[0].name))])

    def _folder(self, name: str) -> str:
        return control.folder(self._state_dir, name)

    async def _poll(self, access: NodeAccess, observation: NodeObservation | None = None) -> PolledNode:
        previous = self._state.node_view(access.name)

        def job() -> PolledNode:
            self._file_watch.remember(access)
            return poll(
                access,
                previous,
                observation,
                read_usage=lambda connection, inventory: self._read_usage(access.name, connection, inventory),
            )

        begun = time.monotonic()
        try:
            return await self._threads.run(job, access.name)
        except DriverHangsError as error:
            return views.failed(previous, error, begun), None

    async def refresh(self, node: str, observation: NodeObservation | None) -> None:
        if self.access(node) is not None and observation is None:
            await self._read([node])
        elif (access := self.access(node)) is not None:
            self._state.update([await self._poll(access, observation)])

    def _read_usage(self, node: str, connection: Connection, inventory: Inventory) -> tuple[Usage, ...]:
        """Read the usage of the instances. Most nodes of a large fleet have none, and are not queried."""
        if not any(gpu.instances or gpu.holders for gpu in inventory.gpus):
            return ()
        from aliquot.node.usage_tracker import UsageTracker

        try:
            if node not in self._watches:
                self._watches[node] = UsageTracker(connection, persist=False)
            return self._watches[node].sample(connection, inventory)
        except AliquotError:
            return ()
