"""The parts of one running dashboard, put together."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from urllib.parse import parse_qs

import jinja2
import msgspec
from starlette.requests import Request
from starlette.responses import Response

from aliquot.dashboard.assets import Assets
from aliquot.dashboard.page import Route, Visit
from aliquot.dashboard.pending_changes import PendingChanges
from aliquot.dashboard.ports import Authenticator, FleetSource
from aliquot.dashboard.rendering import Renderer, RequestContext
from aliquot.dashboard.security.request_guard import RequestCaller, RequestGuard
from aliquot.dashboard.security.sessions import LoginSessions


class SiteSettings(msgspec.Struct, frozen=True):
    """Settings of a site."""

    hosts: tuple[str, ...] = ()
    """Host names that browsers may use."""
    trusted: tuple[str, ...] = ()
    """Names (``name:port``) of a reverse proxy. Forms from these origins are accepted."""
    secure: bool = False
    """Whether the server itself speaks HTTPS."""
    read_only: bool = False
    port: int = 8470
    extra: dict[str, Callable[[Request], Awaitable[Response]]] = {}
    """Endpoints by path that are not pages, such as ``/metrics``."""
    extra_open: bool = False
    """Whether the ``extra`` endpoints need no login."""


class Site:
    """A running dashboard. ``boot`` differs for each process: state from an earlier process is not valid."""

    def __init__(
        self,
        routes: tuple[Route, ...],
        source: FleetSource,
        authenticator: Authenticator,
        settings: SiteSettings = SiteSettings(),  # noqa: B008 - frozen
        templates: jinja2.BaseLoader | None = None,
    ) -> None:
        self.routes, self.source, self.settings = routes, source, settings
        self.assets = Assets()
        self.renderer = Renderer(routes, self.assets, templates)
        self.pending_changes = PendingChanges(source)
        self.sessions = LoginSessions()
        trusted = frozenset(host.lower() for host in settings.trusted)
        self.guard = RequestGuard(
            authenticator, self.sessions, secure=settings.secure, trusted=trusted, port=settings.port
        )
        self.boot = secrets.token_hex(4)
        self.closed = asyncio.Event()

    @property
    def at(self) -> str:
        """The current state version: process, fleet revision and revision of the pending changes."""
        return f"{self.boot}.{self.source.fleet.revision}.{self.pending_changes.revision}"

    def visit(self, caller: RequestCaller, params: dict[str, str], query: str) -> Visit:
        parameters = {name: tuple(values) for name, values in parse_qs(query, keep_blank_values=True).items()}
        person = caller.session.person
        if self.settings.read_only and not person.reads_only:
            person = msgspec.structs.replace(person, reads_only=True)
        return Visit(self.source, person, params, parameters, caller.session.csrf, self.pending_changes)

    def request_context(self, visit: Visit | None, path: str) -> RequestContext:
        """Return the common template variables. ``visit`` is None if the user is not logged in."""
        if visit is None:
            return RequestContext(path=path)
        return RequestContext(visit.who, visit.csrf, path, self.source.kind, self.source.title, self.at)

    def close(self) -> None:
        """Log out all users and end their open streams, so that the server can stop."""
        self.closed.set()
        self.sessions.clear()
