"""The source for nodes within reach: keeps looks, previews asks by the planner, carries them out by the engine."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

import msgspec

from aliquot.core.engine.step_timing import RECORD, Step, Watch, unwatched
from aliquot.dashboard.change_requests import AnyAsk, Attach, Detach
from aliquot.dashboard.local import history as past
from aliquot.dashboard.local import outcome_text as ends
from aliquot.dashboard.local import preview_requests as asked
from aliquot.dashboard.local import previews
from aliquot.dashboard.local.fleet_state import Board
from aliquot.dashboard.local.libvirt_rows import Guest
from aliquot.dashboard.local.node_access import Seen, Spot
from aliquot.dashboard.local.previews import Address, Planned
from aliquot.dashboard.local.worker_threads import Threads
from aliquot.dashboard.ports import Tell
from aliquot.dashboard.view_models import Change, Done, Fleet, Person, Preview, Virtual
from aliquot.errors import AliquotError, BlockedError, PermissionDeniedError, UsageError

if TYPE_CHECKING:
    from aliquot.core.config.file import ConfigFile
    from aliquot.dashboard.local.libvirt_vms import Machines


MOST_APPLIES = 32
"""Changes that run side by side; some may wait long for instances to be let go. Nobody's look waits for them."""


class Feed(Protocol):
    """What keeps a board fresh, for ever."""

    def spot(self, node: str) -> Spot | None:
        """None for a node that is not there."""
        ...

    def spots(self) -> Iterable[Spot]: ...

    async def run(self) -> None: ...

    async def refresh(self, node: str, seen: Seen | None) -> None:
        """What is known of a node by now: a look that somebody has just taken, or (None) a reason to take one."""
        ...


class Here:
    """See ``dashboard.ports.Source``. ``kind``: node or simulator."""

    def __init__(
        self, kind: str, title: str, board: Board, feed: Feed, *, file: ConfigFile | None, address: Address
    ) -> None:
        self.kind = kind
        self.title = title
        self.steps: Watch = unwatched
        self.machines: Machines | None = None
        self._board = board
        self._feed = feed
        self._file = file
        self._address = address
        self._threads = Threads(8, "ask")
        self._appliers = Threads(MOST_APPLIES, "apply")

    @property
    def fleet(self) -> Fleet:
        return self._board.fleet

    @property
    def virtual(self) -> Virtual:
        found = self._board.virtual
        if self.machines is not None:
            return self.machines.beside(found)
        return msgspec.structs.replace(found, no_machines=(NO_MACHINES,))

    @property
    def configs(self) -> tuple[str, ...]:
        return self._file.names if self._file is not None else ()

    async def run(self) -> None:
        if self.machines is None:
            await self._feed.run()
            return
        async with asyncio.TaskGroup() as group:
            group.create_task(self._feed.run())
            group.create_task(self.machines.run(self._board))

    async def changed(self, since: int) -> None:
        await self._board.changed(since)

    # -- asking

    async def preview(self, ask: AnyAsk, who: Person) -> Preview:
        if who.reads_only:
            raise PermissionDeniedError(LOOKER)
        if isinstance(ask, Attach | Detach):
            return await self._guest(ask)
        nodes = asked.nodes_of(ask)
        asked.policy(ask)
        looks = await asyncio.gather(*(self._look(node) for node in nodes))
        found = {node: look for node, look in zip(nodes, looks, strict=True) if isinstance(look, Seen)}
        away = {node: look for node, look in zip(nodes, looks, strict=True) if not isinstance(look, Seen)}
        made = await self._threads.run(lambda: asked.preview(ask, found, self._file, self._address))
        return previews.without(made, away, self._address) if away else made

    async def _guest(self, ask: Attach | Detach) -> Preview:
        machines = self.machines
        if machines is None:
            raise BlockedError(NO_MACHINES)
        self._known(ask.node)
        if not ask.devices:
            raise UsageError("nothing is chosen: tick at least one")
        return await self._threads.run(lambda: machines.preview(ask), ask.node)

    def _known(self, node: str) -> Spot:
        spot = self._feed.spot(node)
        if spot is None:
            raise BlockedError(f"there is no node {node} (any more)", next_step="aliquot sim list")
        return spot

    async def _look(self, node: str) -> Seen | AliquotError:
        """A fresh one, or why there is none. Raises BlockedError for a node that is not there."""
        spot = self._known(node)
        try:
            seen = await self._threads.run(spot.look, node)
        except AliquotError as error:
            return error
        await self._feed.refresh(node, seen)
        return seen

    # -- doing

    async def carry_out(self, preview: Preview, who: Person, tell: Tell) -> Done:
        if who.reads_only:
            return Done("refused", f"Nothing was changed. {LOOKER}", code="NO_PERMISSION")
        if preview.obstacles:
            first = preview.obstacles[0]
            return Done("refused", f"Nothing was changed: {first.message}", code=first.rule, next_step=first.next_step)
        if self.machines is not None and isinstance(preview.secret, Guest):
            machines, guest = self.machines, preview.secret
            done = await self._threads.run(lambda: machines.carry_out(guest, tell), patient=True)
            await machines.refresh(self._board)
            return done
        planned = preview.secret
        assert isinstance(planned, tuple)
        several = len(planned) > 1
        ended = await asyncio.gather(*(self._apply(each, who, tell, several) for each in planned))
        return ends.together([(each.node, done) for each, done in zip(planned, ended, strict=True)])

    async def _apply(self, planned: Planned, who: Person, tell: Tell, several: bool) -> Done:
        node, plan = planned.node, planned.plan
        spot = self._feed.spot(node)
        if spot is None:
            return Done("refused", f"Nothing was changed: there is no node {node} any more.", code="NO_NODE")

        touched = False

        def told(line: str) -> None:
            tell(f"{node}: {line}" if several else line)

        def watched(step: Step) -> None:  # lines are told of a run that was cut off before, too
            nonlocal touched
            touched = touched or step.act or (step.name == RECORD and not step.code)
            self.steps(step)

        self._board.begin(node, who.name)
        try:
            outcome = await self._appliers.run(lambda: spot.apply(plan, who.name, told, watched), patient=True)
        except AliquotError as error:
            return ends.refused(node, error, self._address, touched=touched)
        finally:
            self._board.end(node, who.name)
            await self._feed.refresh(node, None)
        return ends.ended(plan, planned.inventory, outcome, self._address)

    # -- the past, and rights

    async def history(self, node: str | None = None, most: int = 200) -> tuple[Change, ...]:
        spots = [s for s in self._feed.spots() if node in (None, s.name)]
        busy = frozenset(look.name for look in self.fleet.nodes if look.changing)
        return await self._threads.run(lambda: past.changes(spots, most, busy))

    async def may(self, who: Person, what: str) -> str:
        if who.reads_only:
            return LOOKER
        if what == "config" and not self.configs:
            return "This page was started without a config file: there is no named config to use."
        if what in ("attach", "detach"):
            return self.machines.why_not if self.machines is not None else NO_MACHINES
        return ""

    async def aclose(self) -> None:
        self._threads.close()
        self._appliers.close()


LOOKER = "You may look, and change nothing."
NO_MACHINES = (
    "Simulated nodes have no virtual machines. Those of libvirt are on the page of the machine that they run on "
    "(aliquot dashboard, there), those of KubeVirt on the page of their cluster."
)
