"""What went wrong, as a page: a sentence and a way on, never a traceback."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from aliquot.dashboard.application_context import Site
from aliquot.dashboard.page import PageContent
from aliquot.dashboard.security.login import capital
from aliquot.dashboard.security.request_guard import RequestRefusedError
from aliquot.errors import AliquotError

TITLES = {
    400: "This cannot be read",
    401: "Log in first",
    403: "Not allowed",
    404: "There is no such page",
    405: "Not that way",
    408: "Too slow",
    409: "Not now",
    413: "Too large",
    415: "This is no form",
    429: "Too many",
    500: "A fault of ours",
    503: "Not ready yet",
}
STATUS = {"NO_PERMISSION": 403, "FORBIDDEN": 403, "NO_SUCH_GPU": 404, "LOCKED": 409, "INTERNAL": 500}
_UNKNOWN = (401, 429)
"""Whoever is refused so is not asked again who he is: a wrong token would count twice."""
BY_EXIT = {1: 500, 2: 400, 20: 409, 30: 409, 40: 500}

ErrorResponder = Callable[[Request, Exception], Awaitable[Response]]


def error_responders(site: Site) -> Mapping[Any, ErrorResponder]:
    """For each kind of fault how it is answered, as Starlette takes it."""
    pages = _ErrorPages(site)
    return {
        RequestRefusedError: pages.refused,
        AliquotError: pages.aliquot_error,
        HTTPException: pages.http,
        Exception: pages.internal_error,
    }


class _ErrorPages:
    """The pages of one site's faults."""

    def __init__(self, site: Site) -> None:
        self._site = site

    async def refused(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestRefusedError)
        sentence = f"{capital(error.sentence)}."
        answer = await self._page(request, error.status, sentence=sentence, next_step=error.next_step)
        if error.retry_s:
            answer.headers["retry-after"] = str(int(error.retry_s) + 1)
        if error.status in (408, 413):
            answer.headers["connection"] = "close"
        return answer

    async def aliquot_error(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, AliquotError)
        status = STATUS.get(error.code, BY_EXIT.get(error.exit_code, 500))
        fields = {"sentence": f"{capital(error.brief)}.", "details": error.details, "next_step": error.next_step or ""}
        return await self._page(request, status, **fields)

    async def http(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if error.status_code == 404:
            near = nearest(self._site, request.url.path)
            return await self._page(request, 404, sentence="Nothing is at this address.", nearest=near)
        return await self._page(request, error.status_code, sentence=f"{error.detail}.")

    async def internal_error(self, request: Request, error: Exception) -> Response:
        step = "The log of the program that serves this page has the particulars."
        sentence = "This page broke by a fault of Aliquot itself."
        return await self._page(request, 500, sentence=sentence, next_step=step)

    async def _page(self, request: Request, status: int, **fields: object) -> Response:
        visit = None
        if status not in _UNKNOWN:
            with contextlib.suppress(AliquotError, RequestRefusedError):  # then the page is for somebody unknown
                caller = await self._site.guard.caller(request)
                visit = self._site.visit(caller, {}, "") if caller else None
        full = {"sentence": "", "details": (), "next_step": "", "nearest": (), **fields}
        content = PageContent("error.html", TITLES.get(status, "This did not work"), context=full)
        return HTMLResponse(
            self._site.renderer.page(content, self._site.request_context(visit, request.url.path)), status
        )


def nearest(site: Site, path: str) -> tuple[tuple[str, str], ...]:
    """Addresses that look like this one, with words for them."""
    targets = {route.path: route.nav for route in site.routes if route.nav}
    targets |= {f"/nodes/{node.name}": f"node {node.name}" for node in site.source.fleet.nodes}
    close = difflib.get_close_matches(path, targets, n=3, cutoff=0.6)
    return tuple((target, targets[target]) for target in close)
