"""E13 in a browser: the size of a page of 1,000 nodes, and the times of its first paint and of a change."""

from __future__ import annotations

import shutil
import time
from statistics import median
from typing import Any

from benchmarks.bench_page import Environment
from benchmarks.measure import Figure, Report, at_most, spread
from benchmarks.page_change import Toggle

from aliquot.dashboard import formatting as words

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
DOM_GOAL_MS = 1000.0
PAINT_GOAL_MS = 1000.0
ELEMENTS_GOAL = 20_000
_OBSERVE = """(id) => {
    window.changes = [];
    const text = () => document.getElementById(id)?.textContent ?? "";
    let last = text();
    new MutationObserver(() => {
        const now = text();
        if (now !== last) { last = now; window.changes.push(Date.now()); }
    }).observe(document.getElementById("main"), { childList: true, subtree: true, characterData: true });
}"""
_TIMES = """() => {
    const navigation = performance.getEntriesByType("navigation")[0];
    const paint = performance.getEntriesByName("first-contentful-paint")[0];
    return [paint ? paint.startTime : null, navigation.responseEnd, navigation.loadEventEnd];
}"""
_COUNT = "() => document.querySelectorAll('*').length"


def run(report: Report, group: str, environment: Environment, repeats: int) -> None:
    """Run the experiment. Skips, with a line, without a browser."""
    found = next((path for name in PROGRAMS if (path := shutil.which(name))), None)
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        found = None
    if found is None:
        report(Figure(group, "in a browser", "Chromium or Playwright is not installed", "simulated", verdict="skipped"))
        return
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        try:
            context = browser.new_context(viewport={"width": 1280, "height": 900})
            name, _, value = environment.client.cookie.partition("=")
            context.add_cookies([{"name": name, "value": value, "url": environment.page.url}])
            page = context.new_page()
            page.set_default_timeout(120_000)
            _painted(report, group, page, environment, repeats)
            _changed(report, group, page, environment, repeats)
        finally:
            browser.close()


def _painted(report: Report, group: str, page: Any, environment: Environment, repeats: int) -> None:
    paints, loads = [], []
    for turn in range(repeats + 1):
        page.goto(f"{environment.page.url}/", wait_until="load")
        page.wait_for_function("() => performance.getEntriesByName('first-contentful-paint').length > 0")
        paint, _, load = page.evaluate(_TIMES)
        if turn:  # the first fetches styles and scripts too
            paints.append(paint)
            loads.append(load)
    value, extent = f"{median(paints):.0f} ms median", spread(paints, ".0f", " ms")
    goal, verdict = f"<= {PAINT_GOAL_MS:g} ms", at_most(median(paints), PAINT_GOAL_MS)
    report(Figure(group, "/ in Chromium, until its first paint", value, "simulated", goal, verdict, extent))
    value = f"{median(loads):.0f} ms median"
    report(Figure(group, "/ in Chromium, until loaded", value, "simulated", spread=spread(loads, ".0f", " ms")))
    page.wait_for_function("() => document.querySelector('[data-pictures] svg') !== null")
    elements = page.evaluate(_COUNT)
    strip = environment.client.get(words.path("pictures", environment.names[0]))[1].count(b"<path") + 1
    drawn = page.evaluate("() => document.querySelectorAll('[data-pictures] svg').length")
    nodes = len(environment.names)
    name = f"elements of / with {nodes:,} nodes, pictures of the {drawn} rows in view or near"
    value = f"{elements:,} ({elements / nodes:.1f} a node); with the pictures of all about {elements + nodes * strip:,}"
    goal, verdict = f"<= {ELEMENTS_GOAL:,}", at_most(elements, ELEMENTS_GOAL)
    report(Figure(group, name, value, "simulated", goal if nodes >= 1000 else "", verdict if nodes >= 1000 else "-"))


def _changed(report: Report, group: str, page: Any, environment: Environment, repeats: int) -> None:
    """Measure the change of one row. Both sides use the host's clock, in whole milliseconds."""
    name = environment.names[len(environment.names) // 2]
    toggle = Toggle(environment, name)
    page.evaluate(_OBSERVE, f"row-{words.key(name)}")
    took = []
    for turn in range(repeats):
        time.sleep(2)
        began = toggle.turn()
        page.wait_for_function(f"() => window.changes.length > {turn}")
        took.append(page.evaluate("() => window.changes.at(-1)") - began * 1e3)
    toggle.close()
    what = (
        f"a process starts or ends on one instance, until it is in the page's row, {len(environment.names):,} rows open"
    )
    value, goal = f"{median(took):.0f} ms median", f"<= {DOM_GOAL_MS:g} ms"
    verdict = at_most(median(took), DOM_GOAL_MS)
    report(Figure(group, what, value, "simulated", goal, verdict, spread(took, ".0f", " ms")))
