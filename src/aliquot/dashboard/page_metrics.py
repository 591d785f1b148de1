"""Prometheus metrics of the dashboard: fleet totals, requests and their outcomes."""

from __future__ import annotations

import time
from collections.abc import Iterator

from starlette.requests import Request
from starlette.responses import Response

from aliquot.dashboard.application_context import Site
from aliquot.dashboard.change_requests import AnyChangeRequest
from aliquot.dashboard.claim_views import ClaimsView
from aliquot.dashboard.ports import FleetSource
from aliquot.dashboard.view_models import (
    ChangeOutcome,
    ChangePreview,
    ObservedFleet,
    ObservedNode,
    PastChange,
    Person,
    VirtualizationView,
)
from aliquot.foundation.callbacks import Report
from aliquot.metrics import instruments as make
from aliquot.metrics.apply_metrics import ApplyMetrics
from aliquot.metrics.fleet_metrics import FRESH, STALE, UNKNOWN
from aliquot.metrics.fleet_metrics import FleetCollector as Sums
from aliquot.metrics.page import MetricsPage
from aliquot.metrics.snapshot import NodeSnapshot


class DashboardMetrics:
    """The metrics of one dashboard. Serve ``counting_source``, and set ``site`` once it exists."""

    def __init__(self, source: FleetSource) -> None:
        registry = make.registry()
        self._source = source
        self._requests = make.counter("aliquot_dashboard_asks_total", registry)
        self._streams = make.gauge("aliquot_dashboard_streams", registry)
        self._logins = make.counter("aliquot_dashboard_refused_logins_total", registry)
        self._counted_logins = 0
        self.changes = ApplyMetrics(registry, retries=False)
        source.steps = self.changes.record_step
        self.site: Site | None = None
        self.page = MetricsPage(registry, Sums(self._observations), lambda: source.fleet.revision)
        self.counting_source = CountingSource(source, self)

    async def endpoint(self, request: Request) -> Response:
        """Serve ``/metrics``."""
        if self.site is not None:
            self._streams.set(self.site.sessions.streams)
            refused_logins = self.site.guard.attempts.total
            self._logins.inc(refused_logins - self._counted_logins)
            self._counted_logins = refused_logins
        response = self.page.render(dict(request.headers))
        return Response(response.body, 200, {"Content-Type": response.content_type, **response.headers})

    def count_request(self) -> None:
        self._requests.inc()

    def _observations(self) -> Iterator[tuple[NodeSnapshot, str]]:
        for node in self._source.fleet.nodes:
            yield NodeSnapshot(node.name, node.inventory, drift=node.drift), _state(node)


def _state(node: ObservedNode) -> str:
    if node.inventory is None:
        return UNKNOWN
    return STALE if node.stale else FRESH


class CountingSource:
    """A source that counts requests and outcomes."""

    def __init__(self, source: FleetSource, metrics: DashboardMetrics) -> None:
        self._source = source
        self._metrics = metrics
        self.kind = source.kind
        self.title = source.title
        self.steps = source.steps

    @property
    def fleet(self) -> ObservedFleet:
        return self._source.fleet

    @property
    def virtual(self) -> VirtualizationView:
        return self._source.virtual

    @property
    def configs(self) -> tuple[str, ...]:
        return self._source.configs

    def claims(self, node: str = "") -> ClaimsView:
        return self._source.claims(node)

    async def run(self) -> None:
        await self._source.run()

    async def changed(self, since: int) -> None:
        await self._source.changed(since)

    async def preview(self, request: AnyChangeRequest, who: Person) -> ChangePreview:
        self._metrics.count_request()
        return await self._source.preview(request, who)

    async def execute(self, preview: ChangePreview, who: Person, report: Report) -> ChangeOutcome:
        changes, started, began = self._metrics.changes, time.monotonic(), time.time()
        changes.start_change(began)
        try:
            done = await self._source.execute(preview, who, report)
        finally:
            changes.finish_change(began, time.monotonic() - started)
        changes.record_end(done.status, done.code)
        return done

    async def history(self, node: str | None = None, most: int = 200) -> tuple[PastChange, ...]:
        return await self._source.history(node, most)

    async def may(self, who: Person, what: str) -> str:
        return await self._source.may(who, what)

    async def aclose(self) -> None:
        await self._source.aclose()
