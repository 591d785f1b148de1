"""Pages and their regions. Each region has its own template, so that only changed regions are sent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Mapping
from typing import Any

import msgspec

from aliquot.dashboard.ports import FleetSource
from aliquot.dashboard.view_models import CLUSTER, NODE, SIMULATOR, Person


class Region(msgspec.Struct, frozen=True):
    """A part of a page that is replaced as a whole: the element with this ``id``, rendered by ``template``.

    A region with an unchanged ``key`` is not rendered again.
    """

    id: str
    template: str
    key: Hashable
    context: Mapping[str, Any]


class PageContent(msgspec.Struct, frozen=True):
    """A page. ``template`` extends ``base.html`` and places regions with ``{{ region("ID") }}``.

    ``context`` holds what does not change while the page is open. A page without regions has no live updates.
    """

    template: str
    title: str
    regions: tuple[Region, ...] = ()
    context: Mapping[str, Any] = {}
    status: int = 200


class Visit(msgspec.Struct, frozen=True):
    """A request for a page: the user, the path parameters and the query (the values of each name)."""

    source: FleetSource
    who: Person
    params: Mapping[str, str]
    query: Mapping[str, tuple[str, ...]]
    csrf: str
    pending_changes: Any
    """The pending previews and changes (``pending_changes.PendingChanges``)."""


class Route(msgspec.Struct, frozen=True):
    """A page and its path (a pattern of Starlette)."""

    path: str
    name: str
    show: Callable[[Visit], Awaitable[PageContent]]
    """Called again after every change of the fleet while the page is open."""
    nav: str = ""
    """The label in the navigation, "" if the page is not listed."""
    kinds: tuple[str, ...] = (NODE, SIMULATOR, CLUSTER)
    """The kinds of source with this page in their navigation."""
    tracked: bool = True
    """Whether every change of its content changes the revision of the fleet or of the pending changes."""
