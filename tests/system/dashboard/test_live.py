"""The stream of a page: only changed regions, heartbeats, and an end when the login ends."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import msgspec
import pytest

from aliquot.dashboard import live_updates as live
from aliquot.dashboard.page import PageContent, Region, Route, Visit
from aliquot.dashboard.rendering import Renderer, RequestContext
from aliquot.dashboard.view_models import ObservedNode
from aliquot.errors import BlockedError
from system.dashboard.client import Client
from system.dashboard.running import Running, running
from system.dashboard.toy import ROUTES, TEMPLATES, ToySource

Event = tuple[str, Any]


class Stream:
    """The events of a stream, in order."""

    def __init__(self, answer: httpx2.Response) -> None:
        self._lines = answer.iter_lines()

    def next(self) -> Event:
        name = ""
        for line in self._lines:
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                return name, json.loads(line.removeprefix("data: "))
        raise EOFError

    def until(self, wanted: str, past: tuple[str, ...] = ("beat", "hello")) -> Any:
        """Return the next event of that name, skipping heartbeats."""
        while True:
            name, data = self.next()
            if name == wanted:
                return data
            assert name in past, (name, data)


@contextmanager
def stream(client: Client, at: str = "", page: str = "/") -> Iterator[Stream]:
    with client.http.stream("GET", "/live", params={"page": page, "at": at}) as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield Stream(answer)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "BEAT_S", 0.2)


def test_only_the_part_that_changed_comes(client: Client, served: Running, source: ToySource) -> None:
    client.login()
    with stream(client, served.site.at) as events:
        events.until("beat")
        served.call(source.report, "n2", "<b>hot</b>")
        data = events.until("parts")
        assert [id for id, _ in data["parts"]] == ["n-n2"]
        assert "&lt;b&gt;hot&lt;/b&gt;" in data["parts"][0][1]
        assert data["at"] == served.site.at
        served.call(source.report, "n2", "<b>hot</b>")
        assert events.next()[0] == "beat", "unchanged parts are not sent twice"


def test_of_a_thousand_rows_one_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    source = ToySource(*(f"n{n}" for n in range(1000)))
    drawn: list[str] = []
    with running(source, ROUTES, templates=TEMPLATES) as served:
        whole = Renderer.region

        def counted(self: Renderer, region: Region, scene: RequestContext) -> str:
            drawn.append(region.id)
            return whole(self, region, scene)

        monkeypatch.setattr(Renderer, "region", counted)
        client = Client(served).login()
        with stream(client, served.site.at) as events:
            events.until("beat")
            drawn.clear()
            served.call(source.report, "n500", "changed")
            assert len(events.until("parts")["parts"]) == 1
            assert drawn == ["n-n500"]
        client.http.close()


def test_a_stream_rests_for_what_it_cost_and_not_for_what_it_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting for a cluster's answers or for other processes must not delay updates by minutes."""
    monkeypatch.setattr(live, "BUSY", 200.0)

    def waiting(route: Route) -> Route:
        async def show(visit: Visit) -> PageContent:
            await asyncio.sleep(0.3)
            return await route.show(visit)

        return msgspec.structs.replace(route, show=show)

    source = ToySource("n1", "n2")
    with running(source, tuple(map(waiting, ROUTES)), templates=TEMPLATES) as served:
        client = Client(served).login()
        with stream(client, served.site.at) as events:
            events.until("beat")
            for answer in ("one", "two"):
                served.call(source.report, "n1", answer)
                assert answer in events.until("parts")["parts"][0][1]
        client.http.close()


def test_a_page_that_is_behind_gets_all_of_it(client: Client, served: Running, source: ToySource) -> None:
    client.login()
    before = served.site.at
    served.call(source.report, "n1", "missed")
    for at in (before, "", "nonsense", "0.0.0"):
        with stream(client, at) as events:
            data = events.until("page")
            assert "missed" in data["html"]
            assert "data-same" not in data["html"]
            assert data["html"].startswith("<main")
            assert data["title"] == "Nodes"


def test_rows_that_come_and_go_leave_the_others_as_they_are(client: Client, served: Running, source: ToySource) -> None:
    client.login()
    client.get("/")
    with stream(client, served.site.at) as events:
        events.until("beat")
        served.call(source.set, ObservedNode("n1"), ObservedNode("n0", message="new"))
        html = events.until("page")["html"]
        assert "<tr id='n-n1' data-same></tr>" in html
        assert 'id="n-n0"' in html
        assert "n-n2" not in html


def test_a_storm_of_changes_is_a_few_pushes(client: Client, served: Running, source: ToySource) -> None:
    client.login()
    with stream(client, served.site.at) as events:
        events.until("beat")
        began, pushes, last = time.monotonic(), 0, ""
        for n in range(200):
            served.call(source.report, "n1", f"change {n}")
        while "change 199" not in last:
            last = events.until("parts")["parts"][0][1]
            pushes += 1
        assert pushes <= 2 + (time.monotonic() - began) / live.PAUSE_S


def test_a_stream_ends_when_the_login_does(client: Client, served: Running) -> None:
    client.login()
    csrf = client.csrf
    with stream(client, served.site.at) as events:
        events.until("beat")
        other = Client(served)
        other.http.cookies.update(client.http.cookies)
        other.post("/logout", {"csrf": csrf})
        other.http.close()
        events.until("ended")
        with pytest.raises(EOFError):
            events.next()


def test_streams_are_counted_and_given_back(
    client: Client, served: Running, monkeypatch: pytest.MonkeyPatch, source: ToySource
) -> None:
    monkeypatch.setattr(live, "MOST_EACH", 2)
    client.login()
    with stream(client) as one, stream(client) as two:
        one.until("page")
        two.until("page")
        answer = client.get("/live?page=/", accept="text/event-stream")
        assert answer.status_code == 503
        assert "retry-after" in answer.headers
    deadline = time.monotonic() + 30
    while True:
        with client.http.stream("GET", "/live?page=/") as answer:
            if answer.status_code == 200:
                break
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_page_that_is_none_has_no_stream(client: Client) -> None:
    client.login()
    for page in ("", "/nowhere", "/static/live.js", "//evil.example/", "http://evil.example/", "/live"):
        with client.http.stream("GET", "/live", params={"page": page}) as answer:
            assert answer.status_code == 404, page


def test_a_change_reports_its_progress(client: Client, served: Running, source: ToySource) -> None:
    client.login()
    form = {"ask": "cut", "node": "n1", "gpu": "0000:07:00.0", "mig": "1g.5gb", "csrf": client.csrf}
    plan = client.post("/asks", form).headers["location"]
    source.hold.clear()
    with stream(client, served.site.at, plan) as events:
        events.until("beat")
        client.post(f"{plan}/apply", {"csrf": form["csrf"]})
        while "first" not in events.until("parts")["parts"][0][1]:
            pass
        source.hold.set()
        while "class='done'>done<" not in (html := events.until("parts")["parts"][0][1]):
            pass
        assert "last" in html


def test_a_page_that_broke_says_so_on_its_stream(served: Running, client: Client) -> None:
    client.login()
    with stream(client, page="/broken") as events, pytest.raises((EOFError, httpx2.HTTPError)):
        events.next()  # without hello, the browser waits longer after each attempt


def test_a_page_that_cannot_be_looked_at_just_now_goes_on_when_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "ERROR_RETRY_S", 0.1)
    unavailable = [True]

    def failing(route: Route) -> Route:
        async def show(visit: Visit) -> PageContent:
            if unavailable[0]:
                raise BlockedError("the API server is away")
            return await route.show(visit)

        return msgspec.structs.replace(route, show=show)

    source = ToySource("n1")
    with running(source, tuple(map(failing, ROUTES)), templates=TEMPLATES) as served:
        client = Client(served)
        unavailable[0] = False
        client.login()
        at = served.site.at
        unavailable[0] = True
        with stream(client, at) as events:
            for _ in range(3):
                assert events.next() == ("trouble", {"sentence": "the API server is away"})
            unavailable[0] = False
            events.until("hello", ("trouble",))
            unavailable[0] = True
            served.call(source.report, "n1", "one")
            events.until("trouble", ("beat",))
            unavailable[0] = False
            data = events.until("parts", ("trouble",))
            assert "one" in data["parts"][0][1]
        client.http.close()


def test_what_moves_without_a_revision_is_sent_to_every_page_that_opens(source: ToySource) -> None:
    """History comes from journals. Entries written between the page and its stream were never shown."""
    first, *others = ROUTES
    routes = (msgspec.structs.replace(first, tracked=False), *others)
    with running(source, routes, templates=TEMPLATES) as served:
        client = Client(served).login()
        with stream(client, served.site.at) as events:
            assert "n1" in events.until("page")["html"]
        client.http.close()
