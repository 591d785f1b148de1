"""Keeps the look at one node fresh."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from aliquot.dashboard.local import node_views as looks
from aliquot.dashboard.local.fleet_state import Board
from aliquot.dashboard.local.node_access import Seen, Spot
from aliquot.dashboard.local.poll_node import Taken, take
from aliquot.dashboard.local.worker_threads import Threads
from aliquot.errors import AliquotError, DriverHangsError

if TYPE_CHECKING:
    from aliquot.core.model.inventory import Inventory
    from aliquot.core.model.usage import Usage
    from aliquot.node.connect import Connection
    from aliquot.node.usage_record import UsageWatch

WATCHED_S = 1.5
ALONE_S = 15.0
"""How often the node is looked at while somebody watches the page, and while nobody does."""

USAGE_S = 10.0
SAMPLE_S = 0.2
"""How often what its pieces are used for is read, and how long that measures how busy they are."""


class OneNode:
    """See ``source.Feed``."""

    def __init__(self, spot: Spot, board: Board) -> None:
        self._spot = spot
        self._board = board
        self._threads = Threads(2, "look")
        self._watch: UsageWatch | None = None
        self._used = 0.0

    def spot(self, node: str) -> Spot | None:
        return self._spot if node == self._spot.name else None

    def spots(self) -> Iterable[Spot]:
        return (self._spot,)

    async def run(self) -> None:
        try:
            while True:
                await self.refresh(self._spot.name, None)
                self._board.state(ready=True)
                await self._board.pause(WATCHED_S, ALONE_S)
        finally:
            self._threads.close()

    async def refresh(self, node: str, seen: Seen | None) -> None:
        former, begun = self._board.look(self._spot.name), time.monotonic()
        try:
            taken = await self._threads.run(lambda: self._take(seen), node)
        except DriverHangsError as error:
            taken = looks.failed(former, error, begun), None
        self._board.show([taken])

    def _take(self, seen: Seen | None) -> Taken:
        return take(self._spot, self._board.look(self._spot.name), seen, use=self._use)

    def _use(self, connection: Connection, inventory: Inventory) -> tuple[Usage, ...]:
        """What the pieces are used for, from time to time. A driver that cannot tell is no trouble."""
        from aliquot.node.usage_record import UsageWatch

        former = self._board.look(self._spot.name).usage
        if former and time.monotonic() - self._used < USAGE_S:
            return former
        self._used = time.monotonic()
        try:
            self._watch = self._watch or UsageWatch(connection, keep=False)
            return self._watch.look(connection, inventory, SAMPLE_S)
        except AliquotError:
            return ()
