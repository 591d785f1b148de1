"""The pages in a real browser: on a small screen, by keyboard, without scripts, with a thousand nodes, live."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from playwright.sync_api import Browser, Page, expect

from aliquot.dashboard.routes import ROUTES
from aliquot.dashboard.view_models import ObservedFleet
from system.browser import audit, bed
from system.browser.bed import Visitor
from system.dashboard import stub
from system.dashboard.running import Running, running
from system.dashboard.stub import StubSource

GPU = "/nodes/dgx-1/gpus/0000:07:00.0"
PAGES: tuple[str, ...] = (
    "/",
    "/nodes/dgx-1",
    GPU,
    f"{GPU}?want=2g.10gb",
    "/nodes/edge-a2/gpus/0000:08:00.0",
    "/mig",
    "/sriov",
)
PAGES += ("/vgpus", "/machines", "/history", "/nodes/gone-1", "/nodes/nobody")
NAMES = "Plan this geometry"
COUNT = "() => document.querySelectorAll('*').length"
SLOW_MS = 30_000
STRIPS = "() => document.querySelectorAll('svg.strip').length"


def source() -> StubSource:
    return StubSource(stub.fleet(), stub.virtual(), configs=("train",))


def wide(page: Page) -> int:
    return int(page.evaluate("() => document.documentElement.scrollWidth"))


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_page_is_wider_than_a_phone(browser: Browser, tmp_path: Path, theme: str) -> None:
    with (
        running(source(), ROUTES) as served,
        bed.visitor(browser, tmp_path, size=bed.PHONE, color_scheme=theme) as someone,
    ):
        someone.expect("404")
        page = someone.page
        page.goto(served.link)
        for link in page.locator(".top nav a").all():
            seen = link.bounding_box()
            assert seen is not None
            assert 0 <= seen["x"] <= bed.PHONE["width"] - seen["width"], link.inner_text()
        for path in PAGES:
            page.goto(served.url + path)
            assert wide(page) <= bed.PHONE["width"], path
            audit.opened(page)
            assert wide(page) <= bed.PHONE["width"], f"{path}, opened"
        page.goto(served.url + GPU)
        with page.expect_navigation():
            page.get_by_role("button", name=NAMES).click()
        assert wide(page) <= bed.PHONE["width"], "a plan"
        page.goto("about:blank")
        someone.check()


def test_a_change_by_keyboard_alone(visitor: Visitor) -> None:
    with running(source(), ROUTES) as served:
        page = visitor.page
        page.goto(served.link)
        page.goto(served.url + GPU)
        page.keyboard.press("Tab")
        assert page.evaluate("() => document.activeElement.textContent") == "Skip to content"
        typed = page.locator("#typed")
        for _ in range(80):
            if typed.evaluate("element => element === document.activeElement"):
                break
            page.keyboard.press("Tab")
        expect(typed).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="Apply this plan?")).to_be_visible()
        button = page.get_by_role("button", name="Destroy and create on GPU 0000:47:00.0")
        for _ in range(40):
            if button.evaluate("element => element === document.activeElement"):
                break
            page.keyboard.press("Tab")
        expect(button).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="Result")).to_be_visible()
        expect(page.locator("#outcome")).to_contain_text("as asked")
        page.goto("about:blank")


def test_everything_works_without_scripts(browser: Browser, tmp_path: Path) -> None:
    with running(source(), ROUTES) as served, bed.visitor(browser, tmp_path, java_script_enabled=False) as someone:
        page = someone.page
        page.goto(served.link)
        page.goto(served.url + "/")
        page.get_by_label("Find").fill("dgx-1")
        page.get_by_role("button", name="Apply").click()
        expect(page.get_by_text("Showing 1 of 13 nodes.")).to_be_visible()
        page.get_by_role("link", name="dgx-1").click()
        page.get_by_role("button", name="Make room for one more 3g.20gb on GPU 6").click()
        with page.expect_navigation():
            page.get_by_role("button", name="Destroy and create on GPU 0000:47:00.0").click()
        page.reload()
        expect(page.get_by_role("heading", name="Result")).to_be_visible()


def test_a_screen_reader_gets_what_is_drawn(visitor: Visitor) -> None:
    with running(source(), ROUTES) as served:
        visitor.page.goto(served.link)
        visitor.page.goto(served.url + "/nodes/dgx-1")
        tree = visitor.tree()
        assert "GPU 0, A100-SXM4-40GB: 1g.5gb on slice 1, idle; 3g.20gb on slices 4-7, held by process 4711" in tree
        assert tree.count('img "GPU ') == 8, "one picture for each GPU, and none for each of its blocks"
        assert "Make room for one more 3g.20gb on GPU 6" in tree
        visitor.page.goto(served.url + "/")
        rows = visitor.tree()
        assert 'rowheader "dgx-1 8 x A100-SXM4-40GB"' in rows
        assert 'columnheader "Holes"' in rows
        visitor.page.goto("about:blank")


@pytest.mark.slow
def test_a_thousand_nodes(visitor: Visitor) -> None:
    fleet = stub.many(1000)
    canned = StubSource(fleet)
    with running(canned, ROUTES) as served:
        page = visitor.page
        page.goto(served.link)
        page.goto(served.url + "/")
        expect(page.locator("svg.strip").first).to_be_visible(timeout=SLOW_MS)
        paint = page.evaluate("() => performance.getEntriesByName('first-contentful-paint')[0].startTime")
        print(f"1,000 nodes x 8 GPUs: first paint after {paint:.0f} ms, {page.evaluate(COUNT)} elements")
        for _ in range(12):
            page.mouse.wheel(0, 4000)
            page.wait_for_timeout(60)
        row = page.locator("tr", has_text="node-0990")
        row.scroll_into_view_if_needed()
        expect(row.locator("svg.strip")).to_be_visible(timeout=SLOW_MS)
        expect(page.locator("tr", has_text="node-0001").locator("svg.strip")).to_have_count(0)
        assert page.evaluate(STRIPS) < 60
        assert page.evaluate(COUNT) < 12 * 1000 + 1500
        changed(served, canned, fleet)
        expect(row).to_contain_text("the agent is away", timeout=SLOW_MS)
        expect(row.locator("svg.strip")).to_be_visible(timeout=SLOW_MS)
        page.goto("about:blank")


def changed(served: Running, canned: StubSource, fleet: ObservedFleet) -> None:
    """Report an error for one node from now on."""
    observations = [
        msgspec.structs.replace(n, changing="the agent is away", revision=10**6) if n.name == "node-0990" else n
        for n in fleet.nodes
    ]

    def put() -> None:
        canned.fleet = ObservedFleet(tuple(observations), 2, ready=True)

    served.call(put)
