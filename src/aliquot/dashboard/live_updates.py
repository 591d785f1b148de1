"""Live updates: each open page has a stream of server-sent events with the regions that changed.

Only regions whose key (``Region.key``) changed are rendered. Several changes in a row are sent as one update.
From the page's ``at``, a stream knows whether anything changed since the page was rendered.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable
from urllib.parse import urlsplit

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Match
from starlette.routing import Route as Path

from aliquot.dashboard.application_context import Site
from aliquot.dashboard.page import PageContent, Region, Route, Visit
from aliquot.dashboard.security.request_guard import RequestCaller, RequestRefusedError
from aliquot.dashboard.security.sessions import LoginSession
from aliquot.errors import AliquotError

BEAT_S = 10.0
"""The interval of heartbeats. A browser treats a stream that is silent for longer as lost."""
ERROR_RETRY_S = 5.0
"""How long a stream waits after a failed update. The API server may be available again then."""
PAUSE_S = 0.25
BUSY = 20.0
"""A stream pauses this many times the CPU time of its last update, so that open pages cannot overload the server.

Wall time would also count the load of other processes and the response times of a cluster.
"""
MOST = 200
MOST_EACH = 12


class Streams:
    """All open streams."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._open = 0
        self._paths = [(Path(route.path, _nothing), route) for route in site.routes]

    async def endpoint(self, request: Request, caller: RequestCaller) -> Response:
        """Stream what changed on a page since a state: ``?page=PATH&at=AT``."""
        page, at = request.query_params.get("page", ""), request.query_params.get("at", "")
        parts = urlsplit(page)
        route, params = self._find("" if parts.netloc or parts.scheme else parts.path)
        session = caller.session
        if self._open >= MOST or session.streams >= MOST_EACH:
            raise RequestRefusedError(503, "too many pages are open", "Close some of the pages.", retry_s=5)
        visit = self._site.visit(caller, params, parts.query)
        stream = _Stream(self._site, route, visit, page, session)
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(self._counted(stream, at), media_type="text/event-stream", headers=headers)

    def _find(self, path: str) -> tuple[Route, dict[str, str]]:
        for pattern, route in self._paths:
            match, scope = pattern.matches({"type": "http", "method": "GET", "path": path, "headers": []})
            if match is Match.FULL:
                return route, scope["path_params"]
        raise RequestRefusedError(404, "page not found")

    async def _counted(self, stream: _Stream, at: str) -> AsyncIterator[bytes]:
        self._open += 1
        stream.session.streams += 1
        try:
            async for event in stream.events(at):
                yield event
        finally:
            self._open -= 1
            stream.session.streams -= 1


class _Stream:
    """The stream of one open page. ``_known`` are the regions that the page shows."""

    def __init__(self, site: Site, route: Route, visit: Visit, page: str, session: LoginSession) -> None:
        self._site, self._route, self._visit, self._page = site, route, visit, page
        self.session = session
        self._known: dict[str, Region] = {}

    async def events(self, at: str) -> AsyncIterator[bytes]:
        """Yield events, ``hello`` first.

        While the content cannot be read, ``trouble`` replaces the heartbeats.
        """
        now, greeted, failed = "", False, False
        while not self._site.closed.is_set() and await self._site.guard.still_valid(self.session):
            if now and not failed and not await self._wait(now):
                yield event("beat", {})
                continue
            began = time.thread_time()
            try:
                now, content = await self._current_content()
            except AliquotError as error:
                failed = True
                yield event("trouble", {"sentence": error.brief})
                await self._rest(ERROR_RETRY_S)
                continue
            if not greeted:
                yield event("hello", {})
                if at == now and self._route.tracked:
                    self._known = {region.id: region for region in content.regions}
            pushed = self._push(content, now)
            if pushed or failed:
                yield pushed or event("beat", {})
            if greeted:
                await self._rest(max(PAUSE_S, BUSY * (time.thread_time() - began)))
            greeted, failed = True, False
        if not self._site.closed.is_set():
            yield event("ended", {})

    async def _rest(self, seconds: float) -> None:
        """Sleep, but return at once if the site closes."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._site.closed.wait(), seconds)

    async def _current_content(self) -> tuple[str, PageContent]:
        """Return the current state version and page. The version is read first, so that no later change is missed."""
        at = self._site.at
        return at, await self._route.show(self._visit)

    def _push(self, content: PageContent, at: str) -> bytes:
        """Return the event with the changes of the page, b"" if there are none."""
        request_context = self._site.request_context(self._visit, self._page)
        new = {region.id: region for region in content.regions}
        old, self._known = self._known, new
        if list(old) != list(new):
            return event(
                "page",
                {"at": at, "title": content.title, "html": self._site.renderer.main(content, request_context, old)},
            )
        parts = [
            (region.id, self._site.renderer.region(region, request_context))
            for region in content.regions
            if old[region.id].key != region.key
        ]
        return event("parts", {"at": at, "parts": parts}) if parts else b""

    async def _wait(self, at: str) -> bool:
        """Wait for a change since ``at`` (True), the end of the session, or the next heartbeat."""
        _, fleet, pending = at.split(".")
        waits: list[Awaitable[object]] = [
            self._site.source.changed(int(fleet)),
            self._site.pending_changes.changed(int(pending)),
            self.session.ended.wait(),
            self._site.closed.wait(),
        ]
        tasks = [asyncio.ensure_future(wait) for wait in waits]
        try:
            done, _ = await asyncio.wait(tasks, timeout=BEAT_S, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            return bool(done) and not done & set(tasks[2:])
        finally:
            for task in tasks:
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.gather(*tasks, return_exceptions=True)


def event(name: str, data: object) -> bytes:
    """Encode one server-sent event. JSON contains no line breaks."""
    return b"event: " + name.encode() + b"\ndata: " + msgspec.json.encode(data) + b"\n\n"


async def _nothing(request: Request) -> Response:
    raise AssertionError("never called")
