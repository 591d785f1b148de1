"""What a page is made of: regions, each drawn from a template, so that only what changed goes over the wire."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Mapping
from typing import Any

import msgspec

from aliquot.dashboard.ports import FleetSource
from aliquot.dashboard.view_models import Person


class Region(msgspec.Struct, frozen=True):
    """A part of a page that is replaced as one: the element with this ``id``, which the template draws whole. With the
    same ``key`` it would be drawn the same: it is not drawn again.
    """

    id: str
    template: str
    key: Hashable
    context: Mapping[str, Any]


class PageContent(msgspec.Struct, frozen=True):
    """A page: ``template`` extends ``base.html`` and places regions with ``{{ region("ID") }}``. ``context`` is for
    what never changes while it is open. A page that has no regions is not live.
    """

    template: str
    title: str
    regions: tuple[Region, ...] = ()
    context: Mapping[str, Any] = {}
    status: int = 200


class Visit(msgspec.Struct, frozen=True):
    """One request for a page: path parameters, the query (each name's values), who asks."""

    source: FleetSource
    who: Person
    params: Mapping[str, str]
    query: Mapping[str, tuple[str, ...]]
    csrf: str
    pending_changes: Any
    """The previews and changes that are under way (``pending_changes.PendingChanges``)."""


class Route(msgspec.Struct, frozen=True):
    """A page and its path (Starlette's pattern). ``nav`` is its word in the navigation, "" for none. ``show`` is asked
    again on every change of the fleet while the page is open. ``tracked``: whatever it shows moves the fleet's revision
    or the desk's.
    """

    path: str
    name: str
    show: Callable[[Visit], Awaitable[PageContent]]
    nav: str = ""
    tracked: bool = True
