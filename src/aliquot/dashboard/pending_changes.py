"""Pending changes: previews, running changes and their results.

A preview is applied at most once, by the first user who applies it. A change continues if the browser disconnects.
All code here runs on one event loop, except that ``report`` is called from other threads.
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
"""A preview is discarded if it is not applied for an hour: the GPUs will have changed."""
ENDED_S = 24 * 3600.0
MOST = 500
MOST_EACH = 50
MOST_NODES = 5000
"""Nodes in all waiting or ended previews. Each node needs about 60 KiB for its plan and pictures."""
MOST_LINES = 2000
WAITING, RUNNING, ENDED = "waiting", "running", "ended"


class PendingChange(msgspec.Struct, frozen=True):
    """A preview and its result. Times are seconds of wall time, 0 if the event has not happened."""

    id: str
    request: AnyChangeRequest
    preview: ChangePreview
    by: str
    """The user who requested the preview."""
    made: float
    state: str = WAITING
    applied_by: str = ""
    started: float = 0.0
    ended: float = 0.0
    lines: tuple[str, ...] = ()
    """The progress log so far."""
    done: ChangeOutcome | None = None
    """The outcome, once ``state`` is ``ended``."""


class PendingChanges:
    """All pending changes of a site. ``clock`` is wall time in seconds.

    ``revision`` increases with every change of state. If ``closing`` is set, no further change is started.
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
        """Return a change, None if it never existed or was discarded."""
        self._sweep()
        return self._changes.get(id)

    @property
    def running(self) -> tuple[PendingChange, ...]:
        """The running changes, the oldest first."""
        return tuple(change for change in self._changes.values() if change.state == RUNNING)

    async def add(self, request: AnyChangeRequest, who: Person) -> PendingChange:
        """Preview a request and keep the preview. Raises AliquotError as ``FleetSource.preview`` does."""
        preview = await self._source.preview(request, who)
        self._sweep()
        self._evict(who.name, len(preview.nodes))
        change = PendingChange(secrets.token_urlsafe(16), request, preview, who.name, self._clock())
        self._changes[change.id] = change
        return change

    def apply(self, change: PendingChange, who: Person) -> PendingChange:
        """Start the change unless it was started. Two clicks, or two users, start only one change."""
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
        """Wait until the revision differs from ``since``."""
        while self.revision == since:
            await self._news.wait()

    async def settle(self, seconds: float) -> bool:
        """Start no more changes, and wait up to ``seconds`` for running ones. Return whether all ended."""
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
        except Exception:  # noqa: BLE001 - an internal error becomes a sentence, its traceback goes to the log
            log.exception("internal error during a change: %s", change.preview.title)
            sentence = "the change was interrupted by an internal error of Aliquot; the journal has the completed steps"
            done = ChangeOutcome("partial", sentence, code="INTERNAL", next_step="aliquot show")
        await asyncio.sleep(0)  # process the lines that threads reported before the end
        last = self._changes.get(change.id, change)
        preview = msgspec.structs.replace(last.preview, secret=None)  # it is not needed after execution
        self._store(msgspec.structs.replace(last, preview=preview, state=ENDED, ended=self._clock(), done=done))
        log.info("%s: %s: %s", done.status, change.preview.title, done.sentence)

    def _add_line(self, id: str, line: str) -> None:
        change = self._changes.get(id)
        if change is None or change.state != RUNNING or len(change.lines) > MOST_LINES:
            return
        more = line if len(change.lines) < MOST_LINES else "(for more lines, see the journal)"
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
        """Discard the oldest changes that are not running, those of this user first."""
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
