"""Keeps the looks at all simulated nodes of a state directory fresh: the server says which changed, only they are read.

The server that hosts the nodes is asked once for all of them, and answers when there is something to tell.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from aliquot.dashboard.local import node_views as looks
from aliquot.dashboard.local.file_watch import Signs
from aliquot.dashboard.local.fleet_state import Board
from aliquot.dashboard.local.node_access import Seen, Spot
from aliquot.dashboard.local.poll_node import Taken, take
from aliquot.dashboard.local.shared_cache import Habit
from aliquot.dashboard.local.worker_threads import Threads
from aliquot.errors import AliquotError, DriverHangsError
from aliquot.sim import lifecycle as control

if TYPE_CHECKING:
    from aliquot.core.model.inventory import Inventory
    from aliquot.core.model.usage import Usage
    from aliquot.node.connect import Connection
    from aliquot.node.usage_record import UsageWatch

BATCH = 32
"""Nodes that are read before they are shown: the page fills up while the rest is read."""

WAIT_S = 5.0
"""How long one question to the server may wait for an answer."""

EMPTY_S = 1.0
"""How often a directory without nodes is looked at: no server runs that could tell."""


SIGNS_S = 2.0
SIGNS_ALONE_S = 20.0
"""How often locks and records of wishes are looked at, while somebody watches and while nobody does."""


class ManyNodes:
    """See ``source.Feed``."""

    def __init__(self, state_dir: str, board: Board) -> None:
        self._state_dir = state_dir
        self._board = board
        self._threads = Threads(4, "look")
        self._spots: dict[str, Spot] = {}
        self._signs = Signs()
        self._habit = Habit()
        self._since = ""
        self._watches: dict[str, UsageWatch] = {}

    def spot(self, node: str) -> Spot | None:
        found = self._spots.get(node)
        if found is None and control.there(self._state_dir, node):
            found = self._spots[node] = Spot(node, self._state_dir, self._habit)
        return found

    def spots(self) -> Iterable[Spot]:
        return tuple(self._spots.values())

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._ask())
                group.create_task(self._watch_signs())
        finally:
            self._threads.close()

    async def _ask(self) -> None:
        while True:
            try:
                await self._round()
            except (AliquotError, OSError) as error:
                brief = error.brief if isinstance(error, AliquotError) else f"{self._state_dir}: {error}"
                step = error.next_step if isinstance(error, AliquotError) else None
                self._board.state(trouble=brief, next_step=step or "")
                await asyncio.sleep(EMPTY_S)

    async def _watch_signs(self) -> None:
        while True:
            await self._board.pause(SIGNS_S, SIGNS_ALONE_S)
            spots = [spot for spot in self.spots() if spot.name in self._board.names]
            await self._read(await self._threads.run(lambda there=spots: self._signs.moved(there)))  # type: ignore[misc]

    async def _round(self) -> None:
        """One question, and a look at whatever changed. Raises AliquotError where nobody can be asked."""
        news = await self._threads.run(lambda: control.changes(self._state_dir, self._since, WAIT_S), self._state_dir)
        if news is None:  # no node is there, and no server runs
            self._forget(set(self._spots))
            self._since = ""
            self._board.state(ready=True)
            await asyncio.sleep(EMPTY_S)
            return
        if news.names is not None:
            self._forget(set(self._spots) - set(news.names))
        await self._read(sorted(news.changed))
        self._since = news.since
        self._board.state(ready=True)

    def _forget(self, gone: set[str]) -> None:
        for name in gone:
            self._spots.pop(name, None)
            self._signs.forget(name)
            self._watches.pop(name, None)
        if gone:
            self._board.show((), gone)

    async def _read(self, names: Sequence[str]) -> None:
        for start in range(0, len(names), BATCH):
            batch = [self.spot(name) for name in names[start : start + BATCH]]
            there = [spot for spot in batch if spot is not None]
            taken = await asyncio.gather(*map(self._take, there))
            self._board.show([each for each in taken if os.path.isdir(self._folder(each[0].name))])

    def _folder(self, name: str) -> str:
        return control.folder(self._state_dir, name)

    async def _take(self, spot: Spot, seen: Seen | None = None) -> Taken:
        former = self._board.look(spot.name)

        def job() -> Taken:
            self._signs.note(spot)
            return take(spot, former, seen, use=lambda c, i: self._use(spot.name, c, i))

        begun = time.monotonic()
        try:
            return await self._threads.run(job, spot.name)
        except DriverHangsError as error:
            return looks.failed(former, error, begun), None

    async def refresh(self, node: str, seen: Seen | None) -> None:
        if self.spot(node) is not None and seen is None:
            await self._read([node])
        elif (spot := self.spot(node)) is not None:
            self._board.show([await self._take(spot, seen)])

    def _use(self, node: str, connection: Connection, inventory: Inventory) -> tuple[Usage, ...]:
        """What the pieces are used for. Most nodes of a large fleet have none, and are asked nothing."""
        if not any(gpu.instances or gpu.holders for gpu in inventory.gpus):
            return ()
        from aliquot.node.usage_record import UsageWatch

        try:
            if node not in self._watches:
                self._watches[node] = UsageWatch(connection, keep=False)
            return self._watches[node].look(connection, inventory)
        except AliquotError:
            return ()
