"""A thousand simulated nodes with eight GPUs each. All are read, but pictures are drawn only for the rows in view."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from support.processes import until
from system.browser.conftest import Opens
from system.browser.test_failures import Opened
from system.dashboard.program import Program, aliquot

NODES = 1000
SLOW_MS = 60_000
COUNT = "() => document.querySelectorAll('*').length"
STRIPS = "() => document.querySelectorAll('svg.strip').length"
EACH = 12
"""Elements of a row without its picture."""
BESIDE = 1500
"""Elements of the page beside its rows, with the pictures that are in view."""
MOST = 12_000
"""Elements of any other page."""


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Opened]]:
    state = tmp_path_factory.mktemp("m")
    started = aliquot(state, "sim", "start", "dgx-h100", "--name", "node", "--count", str(NODES))
    assert started.returncode == 0, started.stderr
    for node, mig in (("node-0002", "1g.10gb@1,1g.10gb@4"), ("node-0900", "1g.10gb*7")):
        assert aliquot(state, "apply", "--sim", node, "--gpu", "0", "--mig", mig).returncode == 0
    try:
        with Program(state, "--fleet") as program:
            yield state, Opened(program)
    finally:
        aliquot(state, "sim", "stop", "--all")


def full(page: Page) -> None:
    """Wait until every node was observed."""
    expect(page.locator(".fleet tbody tr")).to_have_count(NODES, timeout=2 * SLOW_MS)


@pytest.mark.slow
def test_one_row_for_each_and_pictures_of_what_is_seen(many: tuple[Path, Opened], someone: Opens) -> None:
    _, served = many
    page = someone(served).page
    full(page)
    page.reload()
    expect(page.locator("svg.strip").first).to_be_visible(timeout=SLOW_MS)
    paint = page.evaluate("() => performance.getEntriesByName('first-contentful-paint')[0].startTime")
    print(f"{NODES} nodes x 8 GPUs: first paint after {paint:.0f} ms, {page.evaluate(COUNT)} elements")
    assert page.evaluate(COUNT) < EACH * NODES + BESIDE
    for name in ("node-0500", "node-1000", "node-0001"):
        row = page.locator("tr", has_text=name)
        row.scroll_into_view_if_needed()
        expect(row.locator("svg.strip")).to_be_visible(timeout=SLOW_MS)
        until(lambda: page.evaluate(STRIPS) < 40)
        assert page.evaluate(COUNT) < EACH * NODES + BESIDE
    expect(page.locator("tr", has_text="node-0500").locator("svg.strip")).to_have_count(0)
    page.goto("about:blank")


@pytest.mark.slow
def test_a_node_among_a_thousand_is_found(many: tuple[Path, Opened], someone: Opens) -> None:
    state, served = many
    page = someone(served).page
    full(page)
    page.get_by_label("Find").fill("node-090")
    page.keyboard.press("Enter")
    expect(page.get_by_text(f"Showing 10 of {NODES} nodes.")).to_be_visible(timeout=SLOW_MS)
    page.get_by_label("Find").fill("")
    page.get_by_label("Show", exact=True).select_option("closable")
    expect(page.locator(".fleet tbody tr")).to_have_count(1, timeout=SLOW_MS)
    expect(page.locator(".fleet tbody th")).to_contain_text("node-0002")
    page.get_by_label("Show", exact=True).select_option("")
    expect(page.locator(".fleet tbody tr")).to_have_count(NODES, timeout=SLOW_MS)
    page.get_by_role("columnheader", name="Instances").get_by_role("link").click()
    expect(page.locator(".fleet tbody th").first).to_contain_text("node-0900", timeout=SLOW_MS)
    begun = time.monotonic()
    assert aliquot(state, "sim", "hold", "0", "--sim", "node-0003").returncode == 0
    assert aliquot(state, "apply", "--sim", "node-0777", "--gpu", "1", "--mig", "1g.10gb*6").returncode == 0
    expect(page.locator("tr", has_text="node-0777")).to_contain_text("0 held, 6 idle", timeout=SLOW_MS)
    print(f"a change among {NODES} nodes: seen {time.monotonic() - begun:.1f} s after it was typed")
    page.goto("about:blank")


@pytest.mark.slow
def test_no_page_grows_without_bound(many: tuple[Path, Opened], someone: Opens) -> None:
    _, served = many
    page = someone(served).page
    full(page)
    for path in ("/mig", "/sriov", "/vgpus", "/machines", "/history", "/nodes/node-0002"):
        begun = time.monotonic()
        page.goto(served.url + path)
        count = page.evaluate(COUNT)
        print(f"{path}: {count} elements, {time.monotonic() - begun:.1f} s")
        assert count < MOST, path
    page.goto(f"{served.url}/mig?q=node-0999")
    expect(page.locator("article")).to_have_count(8)
    page.goto("about:blank")
