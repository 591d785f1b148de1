"""Pages rendered without a server: a route's ``show`` and the renderer."""

from __future__ import annotations

import asyncio
from urllib.parse import parse_qs, unquote, urlsplit

from starlette.routing import Match
from starlette.routing import Route as Path

from aliquot.dashboard.assets import Assets
from aliquot.dashboard.page import PageContent, Route, Visit
from aliquot.dashboard.pending_changes import PendingChanges
from aliquot.dashboard.ports import FleetSource
from aliquot.dashboard.rendering import Renderer, RequestContext
from aliquot.dashboard.routes import ROUTES
from aliquot.dashboard.view_models import Person
from system.dashboard.pagecheck import Document

WHO = Person("ana")
RENDERER = Renderer(ROUTES, Assets())


async def _nothing(request: object) -> None:
    raise AssertionError


def visit(
    source: FleetSource, path: str, who: Person = WHO, pending: PendingChanges | None = None
) -> tuple[Route, Visit]:
    """Return the route and the visit of a path."""
    parts = urlsplit(path)
    for route in ROUTES:
        match, scope = Path(route.path, _nothing).matches(
            {"type": "http", "method": "GET", "path": unquote(parts.path), "headers": []}
        )
        if match is Match.FULL:
            query = {name: tuple(values) for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
            return route, Visit(source, who, scope["path_params"], query, "the-csrf", pending or PendingChanges(source))
    raise AssertionError(path)


def shown(source: FleetSource, path: str, who: Person = WHO, pending: PendingChanges | None = None) -> PageContent:
    found: list[PageContent] = []

    async def ask() -> None:
        route, made = visit(source, path, who, pending)
        found.append(await route.show(made))  # not as the result: asyncio.run would put its long repr into a name

    asyncio.run(ask())
    return found[0]


def html(source: FleetSource, path: str, who: Person = WHO, pending: PendingChanges | None = None) -> str:
    scene = RequestContext(who, "the-csrf", path, source.kind, source.title, "1.1.1")
    return RENDERER.page(shown(source, path, who, pending), scene)


def document(source: FleetSource, path: str, who: Person = WHO, pending: PendingChanges | None = None) -> Document:
    """Render and parse a page. Fails if its HTML has an error."""
    read = Document(html(source, path, who, pending), fragment=path.startswith("/pictures/"))
    assert not read.faults, (path, read.faults)
    return read
