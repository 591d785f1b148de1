"""Pages stay as the world is: each open page has a stream, over which the parts that changed come.

A part is asked for by its key alone (``Region.key``); only what has another one is drawn. Several changes in a row are
one push. A stream knows from the page's ``at`` whether anything happened since the page was drawn.
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
"""A browser that hears nothing for a while takes the stream for lost."""
ERROR_RETRY_S = 5.0
"""How long a stream waits after a look that failed: the API server may be back then."""
PAUSE_S = 0.25
BUSY = 20.0
"""A stream rests this many times the CPU time that its last push took: open pages cannot keep the server from its work.
By the clock it would rest for what others do on the machine, too, and for a cluster's answers.
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
        """``?page=PATH&at=AT``: what changed on that page since."""
        page, at = request.query_params.get("page", ""), request.query_params.get("at", "")
        parts = urlsplit(page)
        route, params = self._find("" if parts.netloc or parts.scheme else parts.path)
        session = caller.session
        if self._open >= MOST or session.streams >= MOST_EACH:
            raise RequestRefusedError(503, "too many pages are open", "Close some of them.", retry_s=5)
        visit = self._site.visit(caller, params, parts.query)
        stream = _Stream(self._site, route, visit, page, session)
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(self._counted(stream, at), media_type="text/event-stream", headers=headers)

    def _find(self, path: str) -> tuple[Route, dict[str, str]]:
        for pattern, route in self._paths:
            match, scope = pattern.matches({"type": "http", "method": "GET", "path": path, "headers": []})
            if match is Match.FULL:
                return route, scope["path_params"]
        raise RequestRefusedError(404, "there is no such page")

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
    """One open page: ``known`` is what it shows."""

    def __init__(self, site: Site, route: Route, visit: Visit, page: str, session: LoginSession) -> None:
        self._site, self._route, self._visit, self._page = site, route, visit, page
        self.session = session
        self._known: dict[str, Region] = {}

    async def events(self, at: str) -> AsyncIterator[bytes]:
        """``hello`` comes with the first look, ``trouble`` in the place of signs of life while none can be had."""
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
        """A page that ends is not waited for."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._site.closed.wait(), seconds)

    async def _current_content(self) -> tuple[str, PageContent]:
        """The page as it is now. ``at`` is taken before: what happens meanwhile is looked at again."""
        at = self._site.at
        return at, await self._route.show(self._visit)

    def _push(self, content: PageContent, at: str) -> bytes:
        """What is new in it, b"" for nothing."""
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
        """Until something changed since (True), the session ended, or it is time for a sign of life."""
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
    """One server-sent event; JSON has no line breaks of its own."""
    return b"event: " + name.encode() + b"\ndata: " + msgspec.json.encode(data) + b"\n\n"


async def _nothing(request: Request) -> Response:
    raise AssertionError("never asked")
