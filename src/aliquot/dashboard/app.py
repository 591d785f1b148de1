"""The web application: routes to pages, forms to change requests, and error pages in the same layout.

A server or a test needs only ``application(Site(routes, source, authenticator, SiteSettings()))``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route as Path
from starlette.types import ASGIApp

from aliquot.dashboard import error_pages
from aliquot.dashboard import live_updates as live
from aliquot.dashboard.actions import Actions
from aliquot.dashboard.application_context import Site
from aliquot.dashboard.page import Route
from aliquot.dashboard.security.csrf import foreign_read
from aliquot.dashboard.security.headers import SecurityMiddleware
from aliquot.dashboard.security.login import Login
from aliquot.dashboard.security.request_guard import RequestCaller, RequestRefusedError

Endpoint = Callable[[Request], Awaitable[Response]]
AuthenticatedEndpoint = Callable[[Request, RequestCaller], Awaitable[Response]]


def application(site: Site) -> ASGIApp:
    """Build the dashboard as an ASGI application. The caller must keep ``site.source.run()`` running."""
    login = Login(site.guard, lambda content: site.renderer.page(content, site.request_context(None, "/login")))
    actions = Actions(site)
    streams = live.Streams(site)

    def authenticated(endpoint: AuthenticatedEndpoint) -> Endpoint:
        return _authenticated(site, login, endpoint)

    paths = [
        Path("/healthz", _healthz),
        Path("/login", login.show, methods=["GET"]),
        Path("/login", login.enter, methods=["POST"]),
        Path("/logout", authenticated(_checked(site, login.leave)), methods=["POST"]),
        Path("/static/{path:path}", site.assets.endpoint),
        Path("/asks", authenticated(actions.submit), methods=["POST"]),
        Path("/plans/{id}/apply", authenticated(actions.apply), methods=["POST"]),
        Path("/plans/{id}/again", authenticated(actions.again), methods=["POST"]),
        Path("/live", authenticated(streams.endpoint)),
        *(Path(route.path, authenticated(_page(site, route)), name=route.name) for route in site.routes),
    ]
    for path, endpoint in site.settings.extra.items():
        paths.insert(0, Path(path, endpoint if site.settings.extra_open else authenticated(_without_caller(endpoint))))
    app = Starlette(routes=paths, exception_handlers=error_pages.error_responders(site))
    return SecurityMiddleware(app, site.settings.hosts)


def _authenticated(site: Site, login: Login, endpoint: AuthenticatedEndpoint) -> Endpoint:
    """Restrict an endpoint to users who are logged in. Others are redirected to the login page, then back."""

    async def answer(request: Request) -> Response:
        if request.method in ("GET", "HEAD") and (reason := foreign_read(request)):
            raise RequestRefusedError(403, reason, "Open the page itself.")
        caller = await site.guard.caller(request)
        if caller is not None:
            return await endpoint(request, caller)
        current_path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        if "text/html" not in request.headers.get("accept", "text/html"):
            return PlainTextResponse(
                f"log in first: give {site.guard.authenticator.hint}\n", 401, {"www-authenticate": "Bearer"}
            )
        if request.method == "GET" and request.headers.get("sec-fetch-site") in ("cross-site", "same-site"):
            return login.redirect(request, current_path)
        target = current_path if request.method == "GET" else "/"
        return RedirectResponse(f"/login?next={quote(target, safe='')}" if target != "/" else "/login", 303)

    return answer


def _page(site: Site, route: Route) -> AuthenticatedEndpoint:
    async def endpoint(request: Request, caller: RequestCaller) -> Response:
        query = request.url.query
        current_path = request.url.path + (f"?{query}" if query else "")
        visit = site.visit(caller, dict(request.path_params), query)
        request_context = site.request_context(visit, current_path)
        content = await route.show(visit)
        return HTMLResponse(site.renderer.page(content, request_context), content.status)

    return endpoint


def _checked(site: Site, endpoint: AuthenticatedEndpoint) -> AuthenticatedEndpoint:
    """Check the CSRF token of a form whose fields the endpoint does not read."""

    async def answer(request: Request, caller: RequestCaller) -> Response:
        site.guard.check_write(request, caller, await site.guard.form(request))
        return await endpoint(request, caller)

    return answer


def _without_caller(endpoint: Endpoint) -> AuthenticatedEndpoint:
    async def answer(request: Request, caller: RequestCaller) -> Response:
        return await endpoint(request)

    return answer


async def _healthz(request: Request) -> Response:
    return PlainTextResponse("ok\n")
