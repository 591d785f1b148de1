"""A minimal source and minimal pages, for tests of the server rather than of the pages."""

from __future__ import annotations

import asyncio
import threading

import jinja2
import msgspec

from aliquot.core.engine.step_timing import StepListener, ignore_step
from aliquot.dashboard.change_requests import AnyChangeRequest
from aliquot.dashboard.claim_views import ClaimsView
from aliquot.dashboard.page import PageContent, Region, Route, Visit
from aliquot.dashboard.view_models import (
    ActionLine,
    ChangeOutcome,
    ChangePreview,
    ObservedFleet,
    ObservedNode,
    PastChange,
    Person,
    VirtualizationView,
)
from aliquot.foundation.callbacks import Report


class ToySource:
    """A source with the nodes of a test. ``hold`` delays the end of changes. Each change invalidates older previews."""

    kind, title = "simulator", "a toy"
    virtual = VirtualizationView()
    configs: tuple[str, ...] = ()

    def __init__(self, *names: str) -> None:
        self.steps: StepListener = ignore_step
        self.fleet = ObservedFleet(tuple(ObservedNode(name) for name in names), ready=True)
        self.hold = threading.Event()
        self.hold.set()
        self.carried = 0
        self.applied: list[tuple[str, str]] = []
        self._state = 0
        self._news = asyncio.Event()

    def set(self, *observations: ObservedNode) -> None:
        """Replace the fleet."""
        self.fleet = ObservedFleet(observations, self.fleet.revision + 1, ready=True)
        self._news.set()
        self._news = asyncio.Event()

    def report(self, name: str, message: str) -> None:
        """Set the message of one node."""
        observations = [msgspec.structs.replace(n, message=message) if n.name == name else n for n in self.fleet.nodes]
        self.set(*observations)

    def claims(self, node: str = "") -> ClaimsView:
        return ClaimsView()

    async def run(self) -> None:
        await asyncio.Event().wait()

    async def changed(self, since: int) -> None:
        while self.fleet.revision == since:
            await self._news.wait()

    async def preview(self, ask: AnyChangeRequest, who: Person) -> ChangePreview:
        act = ActionLine("n1", "0000:07:00.0", "create", "a", "1g.5gb", "asked")
        return ChangePreview(f"a change for {who.name}", ("n1",), actions=(act,), secret=self._state)

    async def execute(self, preview: ChangePreview, who: Person, report: Report) -> ChangeOutcome:
        self.carried += 1
        if preview.secret != self._state:
            return ChangeOutcome("refused", "the node changed since this was planned", code="MOVED")
        self._state += 1
        self.applied.append((who.name, preview.title))
        await asyncio.to_thread(self._work, report)
        return ChangeOutcome("done", "it is done")

    def _work(self, report: Report) -> None:
        report("first")
        assert self.hold.wait(60)
        report("last")

    async def history(self, node: str | None = None, most: int = 200) -> tuple[PastChange, ...]:
        return ()

    async def may(self, who: Person, what: str) -> str:
        return ""

    async def aclose(self) -> None:
        return None


async def _nodes(visit: Visit) -> PageContent:
    regions = [
        Region(f"n-{n.name}", "toy/row.html", (n.name, n.message), {"node": n}) for n in visit.source.fleet.nodes
    ]
    return PageContent("toy/nodes.html", "Nodes", tuple(regions))


async def _plan(visit: Visit) -> PageContent:
    change = visit.pending_changes.find(visit.params["id"])
    if change is None:
        return PageContent("toy/nodes.html", "No such plan", status=404)
    return PageContent("toy/plan.html", "Plan", (Region("plan", "toy/sheet.html", change, {"sheet": change}),))


async def _broken(visit: Visit) -> PageContent:
    raise ZeroDivisionError("a secret in a fault")


ROUTES = (
    Route("/", "nodes", _nodes, "Nodes"),
    Route("/broken", "broken", _broken),
    Route("/plans/{id}", "plan", _plan),
)
TEMPLATES = jinja2.DictLoader(
    {
        "toy/nodes.html": '{% extends "base.html" %}{% block content %}<h1>Nodes</h1><table><tbody id="rows">'
        "{% for r in regions %}{{ region(r.id) }}{% endfor %}</tbody></table>{% endblock %}",
        "toy/row.html": '<tr id="n-{{ node.name }}"><td>{{ node.name }}</td><td class="said">{{ node.message }}</td>'
        '<td><input id="typed-{{ node.name }}" aria-label="note"></td>'
        "<td><details><summary>more</summary><p>the rest</p></details></td></tr>",
        "toy/plan.html": '{% extends "base.html" %}{% block content %}<h1>Plan</h1>{{ region("plan") }}{% endblock %}',
        "toy/sheet.html": '<section id="plan"><p class="state">{{ sheet.state }}</p>'
        "<ol>{% for line in sheet.lines %}<li>{{ line }}</li>{% endfor %}</ol>"
        "{% if sheet.done %}<p class='done'>{{ sheet.done.status }}</p>{% endif %}"
        '<form method="post" action="/plans/{{ sheet.id }}/apply"><input type="hidden" name="csrf" value="{{ csrf }}">'
        "<button>Apply</button></form></section>",
    }
)
