"""The desk: previews that somebody looks at, changes that are under way, and how they ended.

A preview is applied at most once, by whoever comes first. A change goes on when the browser leaves: it belongs to the
desk. Everything here runs on one event loop; only ``tell`` comes from other threads.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable

import msgspec

from aliquot.dashboard.change_requests import AnyAsk
from aliquot.dashboard.log import log
from aliquot.dashboard.ports import Source
from aliquot.dashboard.view_models import Done, Person, Preview

WAITS_S = 3600.0
"""A preview that nobody applied for an hour is thrown away: the GPUs will have moved."""
ENDED_S = 24 * 3600.0
MOST = 500
MOST_EACH = 50
MOST_NODES = 5000
"""Nodes in all previews that wait or have ended: each weighs some 60 KiB with its plan and pictures."""
MOST_LINES = 2000
WAITING, RUNNING, ENDED = "waiting", "running", "ended"


class Sheet(msgspec.Struct, frozen=True):
    """One preview and what became of it. ``by`` looked at it first, ``applied_by`` said yes. Times are seconds of wall
    time, 0 for not yet. ``lines`` is what the change told so far; ``done`` is there once ``state`` is ``ended``.
    """

    id: str
    ask: AnyAsk
    preview: Preview
    by: str
    made: float
    state: str = WAITING
    applied_by: str = ""
    started: float = 0.0
    ended: float = 0.0
    lines: tuple[str, ...] = ()
    done: Done | None = None


class Desk:
    """``revision`` is another one whenever anything on the desk is. ``clock`` is wall time in seconds. ``closing``: the
    page is about to end, and no change begins any more.
    """

    def __init__(self, source: Source, clock: Callable[[], float] = time.time) -> None:
        self._source = source
        self._clock = clock
        self._sheets: dict[str, Sheet] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._news = asyncio.Event()
        self.revision = 0
        self.closing = False

    def find(self, id: str) -> Sheet | None:
        """None for one that never was, or was thrown away."""
        self._sweep()
        return self._sheets.get(id)

    @property
    def running(self) -> tuple[Sheet, ...]:
        """The changes under way, the oldest first."""
        return tuple(sheet for sheet in self._sheets.values() if sheet.state == RUNNING)

    async def put(self, ask: AnyAsk, who: Person) -> Sheet:
        """Has the source say what it comes to, and keeps that. Raises AliquotError as ``Source.preview`` does."""
        preview = await self._source.preview(ask, who)
        self._sweep()
        self._make_room(who.name, len(preview.nodes))
        sheet = Sheet(secrets.token_urlsafe(16), ask, preview, who.name, self._clock())
        self._sheets[sheet.id] = sheet
        return sheet

    def apply(self, sheet: Sheet, who: Person) -> Sheet:
        """Starts the change unless it was started. Two clicks, or two people, come to the same change."""
        now = self._sheets.get(sheet.id, sheet)
        if self.closing or now.state != WAITING or not now.preview.changes:
            return now
        begun = msgspec.structs.replace(now, state=RUNNING, applied_by=who.name, started=self._clock())
        self._keep(begun)
        task = asyncio.create_task(self._carry_out(begun, who), name=f"change {sheet.id}")
        self._running[sheet.id] = task
        task.add_done_callback(lambda _: self._running.pop(sheet.id, None))
        return begun

    async def changed(self, since: int) -> None:
        """Returns once the revision is not ``since``."""
        while self.revision == since:
            await self._news.wait()

    async def settle(self, seconds: float) -> bool:
        """Begins no more changes, and waits for those under way, so long at most; says whether all ended."""
        self.closing = True
        if self._running:
            await asyncio.wait(self._running.values(), timeout=seconds)
        return not self._running

    async def _carry_out(self, sheet: Sheet, who: Person) -> None:
        loop = asyncio.get_running_loop()

        def tell(line: str) -> None:
            loop.call_soon_threadsafe(self._told, sheet.id, line)

        log.info("%s applies: %s", who.name, sheet.preview.title)
        try:
            done = await self._source.carry_out(sheet.preview, who, tell)
        except asyncio.CancelledError:
            raise
        except Exception:  # noqa: BLE001 - a fault of ours ends in a sentence, its traceback in the log
            log.exception("a change broke off: %s", sheet.preview.title)
            sentence = "the change broke off by a fault of Aliquot itself; what it did is in the journal"
            done = Done("partial", sentence, code="INTERNAL", next_step="aliquot show")
        await asyncio.sleep(0)  # lines that threads told before the end come before it
        last = self._sheets.get(sheet.id, sheet)
        shown = msgspec.structs.replace(last.preview, secret=None)  # nothing is carried out by it any more
        self._keep(msgspec.structs.replace(last, preview=shown, state=ENDED, ended=self._clock(), done=done))
        log.info("%s: %s: %s", done.status, sheet.preview.title, done.sentence)

    def _told(self, id: str, line: str) -> None:
        sheet = self._sheets.get(id)
        if sheet is None or sheet.state != RUNNING or len(sheet.lines) > MOST_LINES:
            return
        more = line if len(sheet.lines) < MOST_LINES else "(more lines follow, which are in the journal)"
        self._keep(msgspec.structs.replace(sheet, lines=(*sheet.lines, more)))

    def _keep(self, sheet: Sheet) -> None:
        self._sheets[sheet.id] = sheet
        self.revision += 1
        self._news.set()
        self._news = asyncio.Event()

    def _sweep(self) -> None:
        now = self._clock()
        for sheet in list(self._sheets.values()):
            old = sheet.state == WAITING and now - sheet.made > WAITS_S
            if old or (sheet.state == ENDED and now - sheet.ended > ENDED_S):
                del self._sheets[sheet.id]

    def _make_room(self, name: str, nodes: int) -> None:
        """What is under way stays; of the rest the oldest gives way, of this person's first."""
        idle = [sheet for sheet in self._sheets.values() if sheet.state != RUNNING]
        own = [sheet for sheet in idle if sheet.by == name]
        for sheet in own[: max(0, len(own) - MOST_EACH + 1)]:
            del self._sheets[sheet.id]
        idle = [sheet for sheet in idle if sheet.id in self._sheets]
        for sheet in idle[: max(0, len(self._sheets) - MOST + 1)]:
            del self._sheets[sheet.id]
        idle = [sheet for sheet in idle if sheet.id in self._sheets]
        weight = nodes + sum(len(sheet.preview.nodes) for sheet in idle)
        for sheet in idle:
            if weight <= MOST_NODES:
                break
            weight -= len(sheet.preview.nodes)
            del self._sheets[sheet.id]
