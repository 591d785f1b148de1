"""The web application: pages from routes, forms to asks, and everything else answered in the same layout.

``application(Site(routes, source, door, Settings()))`` is all that a server or a test needs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route as Path
from starlette.types import ASGIApp

from aliquot.dashboard import error_pages as faults
from aliquot.dashboard import live_updates as live
from aliquot.dashboard.actions import Actions
from aliquot.dashboard.application_context import Site
from aliquot.dashboard.page import Route
from aliquot.dashboard.security.csrf import foreign_read
from aliquot.dashboard.security.headers import Guard
from aliquot.dashboard.security.login import Login
from aliquot.dashboard.security.request_guard import Caller, Refused

Endpoint = Callable[[Request], Awaitable[Response]]
Known = Callable[[Request, Caller], Awaitable[Response]]


def application(site: Site) -> ASGIApp:
    """The whole page as an ASGI application. Somebody has to keep ``site.source.run()`` going."""
    login = Login(site.gate, lambda shown: site.renderer.page(shown, site.scene(None, "/login")))
    actions = Actions(site)
    streams = live.Streams(site)

    def known(endpoint: Known) -> Endpoint:
        return _known(site, login, endpoint)

    paths = [
        Path("/healthz", _healthz),
        Path("/login", login.show, methods=["GET"]),
        Path("/login", login.enter, methods=["POST"]),
        Path("/logout", known(_checked(site, login.leave)), methods=["POST"]),
        Path("/static/{path:path}", site.assets.endpoint),
        Path("/asks", known(actions.ask), methods=["POST"]),
        Path("/plans/{id}/apply", known(actions.apply), methods=["POST"]),
        Path("/plans/{id}/again", known(actions.again), methods=["POST"]),
        Path("/live", known(streams.endpoint)),
        *(Path(route.path, known(_page(site, route)), name=route.name) for route in site.routes),
    ]
    for path, endpoint in site.settings.extra.items():
        paths.insert(0, Path(path, endpoint if site.settings.extra_open else known(_anybody(endpoint))))
    app = Starlette(routes=paths, exception_handlers=faults.answers(site))
    return Guard(app, site.settings.hosts)


def _known(site: Site, login: Login, endpoint: Known) -> Endpoint:
    """Only for people who are logged in; others are sent to the login page and then back."""

    async def answer(request: Request) -> Response:
        if request.method in ("GET", "HEAD") and (reason := foreign_read(request)):
            raise Refused(403, reason, "Open the page itself.")
        caller = await site.gate.caller(request)
        if caller is not None:
            return await endpoint(request, caller)
        here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        if "text/html" not in request.headers.get("accept", "text/html"):
            return PlainTextResponse(f"log in first: give {site.gate.door.hint}\n", 401, {"www-authenticate": "Bearer"})
        if request.method == "GET" and request.headers.get("sec-fetch-site") in ("cross-site", "same-site"):
            return login.onward(request, here)
        target = here if request.method == "GET" else "/"
        return RedirectResponse(f"/login?next={quote(target, safe='')}" if target != "/" else "/login", 303)

    return answer


def _page(site: Site, route: Route) -> Known:
    async def endpoint(request: Request, caller: Caller) -> Response:
        query = request.url.query
        here = request.url.path + (f"?{query}" if query else "")
        visit = site.visit(caller, dict(request.path_params), query)
        scene = site.scene(visit, here)
        shown = await route.show(visit)
        return HTMLResponse(site.renderer.page(shown, scene), shown.status)

    return endpoint


def _checked(site: Site, endpoint: Known) -> Known:
    """For forms whose fields nobody else reads."""

    async def answer(request: Request, caller: Caller) -> Response:
        site.gate.check_write(request, caller, await site.gate.form(request))
        return await endpoint(request, caller)

    return answer


def _anybody(endpoint: Endpoint) -> Known:
    async def answer(request: Request, caller: Caller) -> Response:
        return await endpoint(request)

    return answer


async def _healthz(request: Request) -> Response:
    return PlainTextResponse("ok\n")
