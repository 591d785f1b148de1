"""The page's own figures for Prometheus: the fleet in sums, what was asked of it and how that ended."""

from __future__ import annotations

import time
from collections.abc import Iterator

from starlette.requests import Request
from starlette.responses import Response

from aliquot.dashboard.application_context import Site
from aliquot.dashboard.change_requests import AnyAsk
from aliquot.dashboard.ports import Source, Tell
from aliquot.dashboard.view_models import Change, Done, Fleet, NodeLook, Person, Preview, Virtual
from aliquot.metrics import instruments as make
from aliquot.metrics.apply_metrics import Changes
from aliquot.metrics.fleet_metrics import FRESH, STALE, UNKNOWN
from aliquot.metrics.fleet_metrics import Fleet as Sums
from aliquot.metrics.page import Page
from aliquot.metrics.snapshot import Look


class Figures:
    """``counted`` is the source to serve; ``site`` is set once there is one."""

    def __init__(self, source: Source) -> None:
        r = make.registry()
        self._source = source
        self._asks = make.counter("aliquot_dashboard_asks_total", r)
        self._streams = make.gauge("aliquot_dashboard_streams", r)
        self._logins = make.counter("aliquot_dashboard_refused_logins_total", r)
        self._told = 0
        self.changes = Changes(r, retries=False)
        source.steps = self.changes.step
        self.site: Site | None = None
        self.page = Page(r, Sums(self._looks), lambda: source.fleet.revision)
        self.counted = Counted(source, self)

    async def endpoint(self, request: Request) -> Response:
        """``/metrics``."""
        if self.site is not None:
            self._streams.set(self.site.sessions.streams)
            wrong = self.site.gate.attempts.total
            self._logins.inc(wrong - self._told)
            self._told = wrong
        shown = self.page.show(dict(request.headers))
        return Response(shown.body, 200, {"Content-Type": shown.content_type, **shown.headers})

    def asked(self) -> None:
        self._asks.inc()

    def _looks(self) -> Iterator[tuple[Look, str]]:
        for node in self._source.fleet.nodes:
            yield Look(node.name, node.inventory, drift=node.drift), _state(node)


def _state(node: NodeLook) -> str:
    if node.inventory is None:
        return UNKNOWN
    return STALE if node.stale else FRESH


class Counted:
    """A source that counts what is asked of it and how that ends."""

    def __init__(self, source: Source, figures: Figures) -> None:
        self._source = source
        self._figures = figures
        self.kind = source.kind
        self.title = source.title
        self.steps = source.steps

    @property
    def fleet(self) -> Fleet:
        return self._source.fleet

    @property
    def virtual(self) -> Virtual:
        return self._source.virtual

    @property
    def configs(self) -> tuple[str, ...]:
        return self._source.configs

    async def run(self) -> None:
        await self._source.run()

    async def changed(self, since: int) -> None:
        await self._source.changed(since)

    async def preview(self, ask: AnyAsk, who: Person) -> Preview:
        self._figures.asked()
        return await self._source.preview(ask, who)

    async def carry_out(self, preview: Preview, who: Person, tell: Tell) -> Done:
        changes, started, began = self._figures.changes, time.monotonic(), time.time()
        changes.begun(began)
        try:
            done = await self._source.carry_out(preview, who, tell)
        finally:
            changes.over(began, time.monotonic() - started)
        changes.ended(done.status, done.code)
        return done

    async def history(self, node: str | None = None, most: int = 200) -> tuple[Change, ...]:
        return await self._source.history(node, most)

    async def may(self, who: Person, what: str) -> str:
        return await self._source.may(who, what)

    async def aclose(self) -> None:
        await self._source.aclose()
