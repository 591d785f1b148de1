"""Poller of one node."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from aliquot.dashboard.local import node_views as views
from aliquot.dashboard.local.fleet_state import FleetState
from aliquot.dashboard.local.node_access import NodeAccess, NodeObservation
from aliquot.dashboard.local.poll_node import PolledNode, poll
from aliquot.dashboard.local.worker_threads import Threads
from aliquot.errors import AliquotError, DriverHangsError

if TYPE_CHECKING:
    from aliquot.core.model.inventory import Inventory
    from aliquot.core.model.usage import Usage
    from aliquot.node.connect import Connection
    from aliquot.node.usage_tracker import UsageTracker

WATCHED_S = 1.5
UNWATCHED_S = 15.0
"""How often the node is observed with and without open pages."""

USAGE_S = 10.0
SAMPLE_S = 0.2
"""How often the usage of instances is read, and for how long their utilization is sampled."""


class NodePoller:
    """See ``source.Poller``."""

    def __init__(self, access: NodeAccess, state: FleetState) -> None:
        self._access = access
        self._state = state
        self._threads = Threads(2, "look")
        self._watch: UsageTracker | None = None
        self._usage_read_at = 0.0

    def access(self, node: str) -> NodeAccess | None:
        return self._access if node == self._access.name else None

    def accesses(self) -> Iterable[NodeAccess]:
        return (self._access,)

    async def run(self) -> None:
        try:
            while True:
                await self.refresh(self._access.name, None)
                self._state.set_status(ready=True)
                await self._state.pause(WATCHED_S, UNWATCHED_S)
        finally:
            self._threads.close()

    async def refresh(self, node: str, observation: NodeObservation | None) -> None:
        previous, begun = self._state.node_view(self._access.name), time.monotonic()
        try:
            polled = await self._threads.run(lambda: self._poll(observation), node)
        except DriverHangsError as error:
            polled = views.failed(previous, error, begun), None
        self._state.update([polled])

    def _poll(self, observation: NodeObservation | None) -> PolledNode:
        return poll(self._access, self._state.node_view(self._access.name), observation, read_usage=self._read_usage)

    def _read_usage(self, connection: Connection, inventory: Inventory) -> tuple[Usage, ...]:
        """Read the usage of the instances at intervals. A driver that does not support this is not an error."""
        from aliquot.node.usage_tracker import UsageTracker

        previous = self._state.node_view(self._access.name).usage
        if previous and time.monotonic() - self._usage_read_at < USAGE_S:
            return previous
        self._usage_read_at = time.monotonic()
        try:
            self._watch = self._watch or UsageTracker(connection, persist=False)
            return self._watch.sample(connection, inventory, SAMPLE_S)
        except AliquotError:
            return ()
