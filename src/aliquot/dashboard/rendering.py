"""Rendering of pages to HTML. Autoescape is always on: untrusted values are text, never markup."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import jinja2
import msgspec
from markupsafe import Markup

from aliquot.dashboard.assets import Assets
from aliquot.dashboard.page import PageContent, Region, Route
from aliquot.dashboard.view_models import Person

_TAG = re.compile(r"\s*<([a-zA-Z][a-zA-Z0-9-]*)")


class RequestContext(msgspec.Struct, frozen=True):
    """Variables of every template besides its own context."""

    who: Person | None = None
    """The user, None before the login."""
    csrf: str = ""
    """The CSRF token, sent by forms in a hidden field."""
    path: str = "/"
    """The page's path with its query."""
    kind: str = ""
    source: str = ""
    """The title of the source."""
    at: str = ""
    """The state version that the page was rendered from (``Site.at``)."""


class Renderer:
    """A renderer of pages and regions. ``routes`` define the navigation; ``more`` loads additional templates."""

    def __init__(self, routes: tuple[Route, ...], assets: Assets, more: jinja2.BaseLoader | None = None) -> None:
        packaged = jinja2.PackageLoader("aliquot.dashboard")
        self._environment = jinja2.Environment(
            loader=packaged if more is None else jinja2.ChoiceLoader([more, packaged]),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
            cache_size=400,
        )
        self._environment.globals["asset"] = assets.url
        self._environment.globals["styles"] = assets.styles
        self._routes = tuple(route for route in routes if route.nav)
        self._tags: dict[str, str] = {}

    @property
    def environment(self) -> jinja2.Environment:
        """The Jinja environment, for additional filters and globals."""
        return self._environment

    def page(self, content: PageContent, request_context: RequestContext) -> str:
        """Render a whole page."""
        return self._page(content, request_context, {}, bare=False)

    def main(self, content: PageContent, request_context: RequestContext, known: Mapping[str, Region]) -> str:
        """Render only the ``<main>`` of a page. Unchanged ``known`` regions are empty elements with ``data-same``."""
        return self._page(content, request_context, known, bare=True)

    def region(self, region: Region, request_context: RequestContext) -> str:
        """Render one region."""
        text = self._environment.get_template(region.template).render({**_variables(request_context), **region.context})
        if region.template not in self._tags and (tag := _TAG.match(text)):
            self._tags[region.template] = tag[1]
        return text

    def _page(
        self, content: PageContent, request_context: RequestContext, known: Mapping[str, Region], *, bare: bool
    ) -> str:
        regions = {region.id: region for region in content.regions}

        def place(id: str) -> Markup:
            region, old = regions[id], known.get(id)
            if old is not None and old.key == region.key and region.template in self._tags:
                return Markup("<{0} id='{1}' data-same></{0}>").format(Markup(self._tags[region.template]), id)
            return Markup(self.region(region, request_context))

        context: dict[str, Any] = {
            **_variables(request_context),
            "title": content.title,
            "nav": tuple((each.path, each.nav) for each in self._routes if request_context.kind in each.kinds),
            "regions": content.regions,
            "region": place,
            "bare": bare,
            "live": bool(content.regions) and request_context.who is not None,
        }
        return self._environment.get_template(content.template).render({**context, **content.context})


def _variables(request_context: RequestContext) -> dict[str, Any]:
    return {
        "who": request_context.who,
        "csrf": request_context.csrf,
        "path": request_context.path,
        "kind": request_context.kind,
        "source": request_context.source,
        "at": request_context.at,
    }
