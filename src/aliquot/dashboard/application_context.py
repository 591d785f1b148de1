"""Everything that one running page consists of, put together."""

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
    """``hosts`` are names that browsers may ask for, ``trusted`` those (``name:port``) of a proxy before us, whose
    pages are ours; ``secure`` says that we speak HTTPS ourselves. ``extra`` are answers that are no pages
    (``/metrics``): path to endpoint; ``extra_open`` gives them to anybody.
    """

    hosts: tuple[str, ...] = ()
    trusted: tuple[str, ...] = ()
    secure: bool = False
    read_only: bool = False
    port: int = 8470
    extra: dict[str, Callable[[Request], Awaitable[Response]]] = {}
    extra_open: bool = False


class Site:
    """``boot`` tells this process from the one before: what a page of that one knows is worth nothing."""

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
        """The state of the world that pages are drawn from now."""
        return f"{self.boot}.{self.source.fleet.revision}.{self.pending_changes.revision}"

    def visit(self, caller: RequestCaller, params: dict[str, str], query: str) -> Visit:
        parameters = {name: tuple(values) for name, values in parse_qs(query, keep_blank_values=True).items()}
        person = caller.session.person
        if self.settings.read_only and not person.reads_only:
            person = msgspec.structs.replace(person, reads_only=True)
        return Visit(self.source, person, params, parameters, caller.session.csrf, self.pending_changes)

    def request_context(self, visit: Visit | None, path: str) -> RequestContext:
        """What templates know; ``visit`` None is somebody unknown."""
        if visit is None:
            return RequestContext(path=path)
        return RequestContext(visit.who, visit.csrf, path, self.source.kind, self.source.title, self.at)

    def close(self) -> None:
        """Nobody is logged in any more, and open streams end, so that the server can."""
        self.closed.set()
        self.sessions.clear()
