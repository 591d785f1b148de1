"""Error pages: a sentence and a next step, never a traceback."""

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
    400: "Invalid request",
    401: "Log in first",
    403: "Permission denied",
    404: "Page not found",
    405: "Method not allowed",
    408: "Request timed out",
    409: "Not possible now",
    413: "Request too large",
    415: "Unsupported content type",
    429: "Too many requests",
    500: "Internal error",
    503: "Not ready yet",
}
STATUS = {"NO_PERMISSION": 403, "FORBIDDEN": 403, "NO_SUCH_GPU": 404, "LOCKED": 409, "INTERNAL": 500}
_UNKNOWN = (401, 429)
"""For these, the caller is not authenticated again: a wrong token would count twice."""
BY_EXIT = {1: 500, 2: 400, 20: 409, 30: 409, 40: 500}

ErrorResponder = Callable[[Request, Exception], Awaitable[Response]]


def error_responders(site: Site) -> Mapping[Any, ErrorResponder]:
    """Return the exception handlers for Starlette."""
    pages = _ErrorPages(site)
    return {
        RequestRefusedError: pages.refused,
        AliquotError: pages.aliquot_error,
        HTTPException: pages.http,
        Exception: pages.internal_error,
    }


class _ErrorPages:
    """The error pages of one site."""

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
            return await self._page(request, 404, sentence="No page exists at this address.", nearest=near)
        return await self._page(request, error.status_code, sentence=f"{error.detail}.")

    async def internal_error(self, request: Request, error: Exception) -> Response:
        step = "For details, see the log of the dashboard's server."
        sentence = "An internal error of Aliquot occurred."
        return await self._page(request, 500, sentence=sentence, next_step=step)

    async def _page(self, request: Request, status: int, **fields: object) -> Response:
        visit = None
        if status not in _UNKNOWN:
            with contextlib.suppress(AliquotError, RequestRefusedError):  # then the page has no user
                caller = await self._site.guard.caller(request)
                visit = self._site.visit(caller, {}, "") if caller else None
        full = {"sentence": "", "details": (), "next_step": "", "nearest": (), **fields}
        content = PageContent("error.html", TITLES.get(status, "Request failed"), context=full)
        return HTMLResponse(
            self._site.renderer.page(content, self._site.request_context(visit, request.url.path)), status
        )


def nearest(site: Site, path: str) -> tuple[tuple[str, str], ...]:
    """Return up to three paths similar to this one, each with a label."""
    targets = {route.path: route.nav for route in site.routes if route.nav}
    targets |= {f"/nodes/{node.name}": f"node {node.name}" for node in site.source.fleet.nodes}
    close = difflib.get_close_matches(path, targets, n=3, cutoff=0.6)
    return tuple((target, targets[target]) for target in close)
