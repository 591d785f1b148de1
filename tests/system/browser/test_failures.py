"""A fleet that is empty, not observed yet, half unavailable, or without its page for a while."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from playwright.sync_api import expect

from aliquot.dashboard.routes import ROUTES
from aliquot.dashboard.view_models import ObservedFleet
from support.processes import until
from system.browser import audit
from system.browser.conftest import Opens
from system.dashboard import stub
from system.dashboard.program import Program, aliquot
from system.dashboard.running import running
from system.dashboard.stub import StubSource

LIVE_MS = 40_000
EMPTY = ("/", "/mig", "/sriov", "/vgpus", "/machines", "/history")


class Opened:
    """Address and token of the page that a program serves."""

    def __init__(self, program: Program) -> None:
        program.until(lambda: "with the token" in program.reported)
        self.url = program.url
        self.token = program.reported.partition("with the token ")[2].split()[0]


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "s"
    aliquot(tmp_path / "s", "sim", "stop", "--all")


def test_an_empty_fleet_says_how_to_begin_and_fills_by_itself(state: Path, someone: Opens) -> None:
    with Program(state, "--fleet") as program:
        served = Opened(program)
        visitor = someone(served)
        page = visitor.page
        for path in EMPTY:
            page.goto(served.url + path)
            assert not audit.faults(page), path
        page.goto(served.url)
        expect(page.locator(".empty")).to_contain_text("No nodes yet.")
        typed = page.locator(".empty code").first.inner_text().split()
        assert aliquot(state, *typed[1:], "--name", "first").returncode == 0
        expect(page.get_by_role("link", name="first")).to_be_visible(timeout=LIVE_MS)
        assert not audit.faults(page)
        assert aliquot(state, "sim", "stop", "first").returncode == 0
        expect(page.locator(".empty")).to_contain_text("No nodes yet.", timeout=LIVE_MS)
        visitor.page.goto("about:blank")


def test_a_node_that_goes_while_its_page_is_open(state: Path, someone: Opens) -> None:
    assert aliquot(state, "sim", "start", "a30", "--name", "one").returncode == 0
    assert aliquot(state, "sim", "start", "a30", "--name", "two").returncode == 0
    with Program(state, "--fleet") as program:
        served = Opened(program)
        fleet, page = someone(served).page, someone(served).page
        page.goto(f"{served.url}/nodes/two")
        expect(page.get_by_role("heading", name="GPUs")).to_be_visible()
        assert aliquot(state, "sim", "stop", "two").returncode == 0
        expect(fleet.get_by_role("link", name="two")).to_have_count(0, timeout=LIVE_MS)
        expect(page.get_by_role("heading", name="Node not found")).to_be_visible(timeout=LIVE_MS)
        expect(page.get_by_role("link", name="Back to Fleet")).to_be_visible()
        fleet.goto("about:blank")
        page.goto("about:blank")


def test_a_page_that_is_killed_and_comes_back(state: Path, someone: Opens) -> None:
    assert aliquot(state, "sim", "start", "a30", "--name", "one").returncode == 0
    with Program(state, "--fleet") as program:
        served = Opened(program)
        visitor = someone(served)
        visitor.expect("ERR_", "Failed to load resource")
        page, port = visitor.page, served.url.rpartition(":")[2]
        expect(page.get_by_role("link", name="one")).to_be_visible(timeout=LIVE_MS)
        program.signal(9)
        program.wait()
    expect(page.locator("#liveness")).to_contain_text("Connection lost at", timeout=LIVE_MS)
    expect(page.get_by_role("link", name="one")).to_be_visible()
    with Program(state, "--fleet", "--listen", f"127.0.0.1:{port}") as program:
        served = Opened(program)
        expect(page.locator("#liveness")).to_contain_text("You are logged out.", timeout=LIVE_MS)
        page.get_by_role("link", name="Log in again").click()
        page.get_by_label("Token").fill(served.token)
        page.keyboard.press("Enter")
        expect(page.get_by_role("link", name="one")).to_be_visible(timeout=LIVE_MS)
        page.goto("about:blank")


def test_a_fleet_that_is_not_looked_at_yet_is_not_empty(someone: Opens) -> None:
    source = StubSource(ObservedFleet())
    with running(source, ROUTES) as served:
        page = someone(served).page
        expect(page.locator("#status")).to_contain_text("Reading the GPUs for the first time")
        expect(page.get_by_text("No nodes yet.")).to_have_count(0)

        def observed() -> None:
            source.fleet = msgspec.structs.replace(stub.fleet(), revision=2)

        served.call(observed)
        expect(page.get_by_role("link", name="dgx-1")).to_be_visible(timeout=LIVE_MS)
        expect(page.locator("#status")).not_to_contain_text("for the first time")
        page.goto("about:blank")


def test_what_is_stale_is_marked_for_everybody(someone: Opens) -> None:
    with running(StubSource(stub.fleet()), ROUTES) as served:
        page = someone(served).page
        gone = page.locator("tr", has=page.get_by_role("link", name="gone-1"))
        expect(gone).to_contain_text("not responding, last read ")
        page.goto(f"{served.url}/nodes/gone-1")
        alert = page.get_by_role("alert")
        expect(alert).to_contain_text("Out of date. the agent has not answered since 09:12")
        expect(alert).to_contain_text("kubectl get pods -n aliquot")
        expect(page.locator("article.stale")).to_have_count(2)
        assert not audit.faults(page)
        until(lambda: not page.get_by_role("button", name="Make room").locator(":enabled").count())
        page.goto("about:blank")
