"""The desk: previews that somebody looks at, changes that are under way, and how they ended.

A preview is applied at most once, by whoever comes first. A change goes on when the browser leaves: it belongs to the
desk. Everything here runs on one event loop; only ``report`` comes from other threads.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable

import msgspec

from aliquot.dashboard.change_requests import AnyChangeRequest
from aliquot.dashboard.log import log
from aliquot.dashboard.ports import FleetSource
from aliquot.dashboard.view_models import ChangeOutcome, ChangePreview, Person

WAITS_S = 3600.0
"""A preview that nobody applied for an hour is thrown away: the GPUs will have moved."""
ENDED_S = 24 * 3600.0
MOST = 500
MOST_EACH = 50
MOST_NODES = 5000
"""Nodes in all previews that wait or have ended: each weighs some 60 KiB with its plan and pictures."""
MOST_LINES = 2000
WAITING, RUNNING, ENDED = "waiting", "running", "ended"


class PendingChange(msgspec.Struct, frozen=True):
    """One preview and what became of it. ``by`` looked at it first, ``applied_by`` said yes. Times are seconds of wall
    time, 0 for not yet. ``lines`` is what the change told so far; ``done`` is there once ``state`` is ``ended``.
    """

    id: str
    request: AnyChangeRequest
    preview: ChangePreview
    by: str
    made: float
    state: str = WAITING
    applied_by: str = ""
    started: float = 0.0
    ended: float = 0.0
    lines: tuple[str, ...] = ()
    done: ChangeOutcome | None = None


class PendingChanges:
    """``revision`` is another one whenever anything on the desk is. ``clock`` is wall time in seconds. ``closing``: the
    page is about to end, and no change begins any more.
    """

    def __init__(self, source: FleetSource, clock: Callable[[], float] = time.time) -> None:
        self._source = source
        self._clock = clock
        self._changes: dict[str, PendingChange] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._news = asyncio.Event()
        self.revision = 0
        self.closing = False

    def find(self, id: str) -> PendingChange | None:
        """None for one that never was, or was thrown away."""
        self._sweep()
        return self._changes.get(id)

    @property
    def running(self) -> tuple[PendingChange, ...]:
        """The changes under way, the oldest first."""
        return tuple(change for change in self._changes.values() if change.state == RUNNING)

    async def add(self, request: AnyChangeRequest, who: Person) -> PendingChange:
        """Has the source say what it comes to, and keeps that. Raises AliquotError as ``FleetSource.preview`` does."""
        preview = await self._source.preview(request, who)
        self._sweep()
        self._evict(who.name, len(preview.nodes))
        change = PendingChange(secrets.token_urlsafe(16), request, preview, who.name, self._clock())
        self._changes[change.id] = change
        return change

    def apply(self, change: PendingChange, who: Person) -> PendingChange:
        """Starts the change unless it was started. Two clicks, or two people, come to the same change."""
        now = self._changes.get(change.id, change)
        if self.closing or now.state != WAITING or not now.preview.changes:
            return now
        begun = msgspec.structs.replace(now, state=RUNNING, applied_by=who.name, started=self._clock())
        self._store(begun)
        task = asyncio.create_task(self._execute(begun, who), name=f"change {change.id}")
        self._running[change.id] = task
        task.add_done_callback(lambda _: self._running.pop(change.id, None))
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

    async def _execute(self, change: PendingChange, who: Person) -> None:
        loop = asyncio.get_running_loop()

        def report(line: str) -> None:
            loop.call_soon_threadsafe(self._add_line, change.id, line)

        log.info("%s applies: %s", who.name, change.preview.title)
        try:
            done = await self._source.execute(change.preview, who, report)
        except asyncio.CancelledError:
            raise
        except Exception:  # noqa: BLE001 - a fault of ours ends in a sentence, its traceback in the log
            log.exception("a change broke off: %s", change.preview.title)
            sentence = "the change broke off by a fault of Aliquot itself; what it did is in the journal"
            done = ChangeOutcome("partial", sentence, code="INTERNAL", next_step="aliquot show")
        await asyncio.sleep(0)  # lines that threads told before the end come before it
        last = self._changes.get(change.id, change)
        preview = msgspec.structs.replace(last.preview, secret=None)  # nothing is carried out by it any more
        self._store(msgspec.structs.replace(last, preview=preview, state=ENDED, ended=self._clock(), done=done))
        log.info("%s: %s: %s", done.status, change.preview.title, done.sentence)

    def _add_line(self, id: str, line: str) -> None:
        change = self._changes.get(id)
        if change is None or change.state != RUNNING or len(change.lines) > MOST_LINES:
            return
        more = line if len(change.lines) < MOST_LINES else "(more lines follow, which are in the journal)"
        self._store(msgspec.structs.replace(change, lines=(*change.lines, more)))

    def _store(self, change: PendingChange) -> None:
        self._changes[change.id] = change
        self.revision += 1
        self._news.set()
        self._news = asyncio.Event()

    def _sweep(self) -> None:
        now = self._clock()
        for change in list(self._changes.values()):
            old = change.state == WAITING and now - change.made > WAITS_S
            if old or (change.state == ENDED and now - change.ended > ENDED_S):
                del self._changes[change.id]

    def _evict(self, user: str, nodes: int) -> None:
        """What is under way stays; of the rest the oldest gives way, of this person's first."""
        idle = [change for change in self._changes.values() if change.state != RUNNING]
        own = [change for change in idle if change.by == user]
        for change in own[: max(0, len(own) - MOST_EACH + 1)]:
            del self._changes[change.id]
        idle = [change for change in idle if change.id in self._changes]
        for change in idle[: max(0, len(self._changes) - MOST + 1)]:
            del self._changes[change.id]
        idle = [change for change in idle if change.id in self._changes]
        weight = nodes + sum(len(change.preview.nodes) for change in idle)
        for change in idle:
            if weight <= MOST_NODES:
                break
            weight -= len(change.preview.nodes)
            del self._changes[change.id]
