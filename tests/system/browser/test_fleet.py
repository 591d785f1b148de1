"""Every page over the fleet of ``make dashboard``: usable on a desktop, with a screen reader and on a phone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from system.browser import audit, bed, pictures
from system.browser.conftest import Opens
from system.browser.fleet import Environment
from system.dashboard.program import SOURCE

FIXED: tuple[str, ...] = (
    "/",
    "/?show=closable&sort=holes",
    "/?q=nobody",
    "/mig",
    "/mig?q=infer",
    "/sriov",
    "/vgpus",
    "/machines",
)
FIXED += ("/history", "/history?node=lab", "/nodes/nobody", "/nowhere", "/plans/none")
NODES = ("desks-1", "infer-1", "lab", "train-1", "train-2")
GPU = "article h3 a"


def pages(page: Page, url: str, *, each: bool = True) -> Iterator[str]:
    """Visit every page: the GPUs of each node, valid plans and blocked ones. Without ``each``, visit one page of each
    kind.
    """
    for path in FIXED:
        page.goto(url + path)
        yield path
    for node in NODES if each else NODES[:3]:
        page.goto(f"{url}/nodes/{node}")
        yield node
        for path in page.locator(GPU).evaluate_all("all => all.map((a) => a.pathname)")[: 2 if each else 1]:
            page.goto(url + path)
            yield path
    page.goto(f"{url}/nodes/train-2")
    page.locator(GPU).first.click()
    for profile in ("1g.10gb", "3g.40gb") if each else ("4g.40gb",):
        page.get_by_label("Profile", exact=True).select_option(profile)
        expect(page.locator("h2", has_text=profile)).to_be_visible()
        yield f"one more {profile}"
    page.goto(f"{url}/nodes/lab")
    _press(page, "Plan: restore the request")
    yield "a plan"
    page.goto(f"{url}/nodes/train-1")
    page.locator(GPU).first.click()
    page.get_by_label("Geometry").fill("7g.80gb")
    _press(page, "Plan this geometry")
    yield "a plan that is blocked"
    page.go_back()
    page.get_by_label("Geometry").fill("9g.1000gb,1g.10gb@x")
    _press(page, "Plan this geometry")
    yield "a geometry that is none"


def _press(page: Page, name: str) -> None:
    """Send a form by its button and wait for the next page: an unfinished page has no width yet."""
    with page.expect_navigation():
        page.get_by_role("button", name=name).click()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_page_on_a_large_screen(environment: Environment, someone: Opens, theme: str) -> None:
    visitor = someone(environment, color_scheme=theme)
    visitor.expect("status of 404")
    wrong = []
    for where in pages(visitor.page, environment.url, each=theme == "light"):
        audit.opened(visitor.page)
        wrong += [f"{where}: {fault}" for fault in audit.faults(visitor.page)]
        if audit.wide(visitor.page) > bed.DESKTOP["width"]:
            wrong.append(f"{where}: too wide")
    assert not wrong, "\n".join(wrong)


def test_every_page_on_a_phone(environment: Environment, someone: Opens) -> None:
    visitor = someone(environment, size=bed.PHONE, has_touch=True)
    visitor.expect("status of 404")
    for where in pages(visitor.page, environment.url):
        assert audit.wide(visitor.page) <= bed.PHONE["width"], where
        audit.opened(visitor.page)
        assert audit.wide(visitor.page) <= bed.PHONE["width"], f"{where}, opened"
        tall = visitor.page.locator(".numbers:not(.cardy) tbody tr").evaluate_all(
            "all => all.map((r) => r.offsetHeight)"
        )
        assert max(tall, default=0) < 80, f"{where}: rows of figures are rows"


def test_a_screen_reader_tells_a_gpu(environment: Environment, someone: Opens) -> None:
    page = someone(environment).page
    page.goto(f"{environment.url}/nodes/train-1")
    images = audit.names(page, "image")
    assert images[1] == "GPU 1, H100 80GB HBM3: 3g.40gb on slices 0-3, idle; 3g.40gb on slices 4-7, idle."
    assert re.fullmatch(r"GPU 3, H100 80GB HBM3: 7g\.80gb on slices 0-7, held by process \d+ \(\w+\)\.", images[3])
    assert len(images) == 8, "one picture for each GPU, and none for each of its blocks"
    assert any("not partitioned" in image for image in images)


def test_a_screen_reader_tells_a_row(environment: Environment, someone: Opens) -> None:
    page = someone(environment).page
    rows = [" ".join(row.split()) for row in page.locator("tbody [role=row]").all_inner_texts()]
    assert len([r for r in rows if r.startswith(NODES)]) == len(NODES)
    assert [
        name for name in audit.names(page, "columnheader") if name in ("Node", "Instances", "Free", "Holes", "Drift")
    ]
    assert "desks-1 2 x A2" in audit.names(page, "rowheader")
    cells = audit.names(page, "cell")
    assert "0 held, 3 idle" in cells
    strips = audit.names(page, "image")
    assert "GPU 0: 3 idle and has free room; GPU 1: does not support MIG" in strips
    assert any(strip.startswith("GPU 0: 2 idle and has a hole; GPU 1: ") for strip in strips)


def test_a_screen_reader_tells_a_plan(environment: Environment, someone: Opens) -> None:
    page = someone(environment).page
    page.goto(f"{environment.url}/nodes/lab")
    assert "Plan: restore the request" in audit.names(page, "button")
    _press(page, "Plan: restore the request")
    expect(page.get_by_role("heading", name="Apply this plan?")).to_be_visible()
    messages = [n["name"] for n in audit.tree(page) if n["role"] in ("heading", "StaticText", "button", "columnheader")]
    assert "Restore lab to its last request" in messages
    will = next(sentence for sentence in messages if sentence.startswith("This will"))
    assert "3g.20gb on slices 0-3" in will
    assert re.search(r"\d instances stay untouched\.$", will)
    assert "Create on GPU 0000:01:00.0" in messages
    now, planned = audit.names(page, "image")[:2]
    rest = "2g.10gb on slices 4-5, idle; 1g.5gb on slice 6, idle; "
    assert now == f"GPU 0 0000:01:00.0 A100-SXM4-40GB, now: {rest}slices 0-3, 7 free."
    assert planned.endswith(f"planned: 3g.20gb on slices 0-3, new; {rest}slice 7 free.")
    assert audit.names(page, "columnheader") == ["Action", "Details", "Reason", "GPU"]


def test_the_pictures_of_the_documentation_can_be_taken_again(
    browser: Browser, environment: Environment, tmp_path: Path
) -> None:
    # ``make pictures`` takes them without an error in the console. People review the pictures themselves.
    environment.cut("train-2", 0, "1g.10gb@1,1g.10gb@4")
    made = pictures.taken(browser, environment, tmp_path)
    assert {p.name for p in made} == {p.name for p in (Path(SOURCE).parent / "docs/pictures").glob("*.png")}
    assert all(p.stat().st_size > 30_000 for p in made)
