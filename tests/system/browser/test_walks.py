"""Main tasks of users: close a hole, get a refusal and find a valid plan, see what other users do."""

from __future__ import annotations

import re

from playwright.sync_api import Locator, Page, expect

from support.processes import until
from system.browser.conftest import Opens
from system.browser.fleet import Environment

TRAIN = "/nodes/train-2"
LIVE_MS = 30_000


def holed(environment: Environment, gpu: int) -> None:
    """Place two small instances so that neither half can hold a 3g.40gb."""
    where = ("--sim", "train-2", "--gpu", str(gpu))
    environment.aliquot("apply", *where, "--mig", "1g.10gb@1,1g.10gb@4", "--policy", "force")


def row(page: Page, node: str) -> Locator:
    return page.locator("tbody tr", has=page.get_by_role("link", name=node, exact=True))


def to_close(page: Page) -> int:
    """Return the fleet's number of GPUs whose holes can be closed."""
    text = page.locator(".figure", has_text="with holes").inner_text()
    found = re.search(r"(\d+) closable", text)
    return int(found[1]) if found else int(text.split()[0]) if "closable" in text else 0


def tab_to(page: Page, target: Locator) -> None:
    for _ in range(150):
        page.keyboard.press("Tab")
        if target.evaluate("element => element === document.activeElement"):
            outline = target.evaluate("element => getComputedStyle(element).outlineStyle")
            assert outline != "none", "the focus must be visible"
            return
    raise AssertionError("it cannot be reached by keyboard")


def test_a_user_sees_a_hole_and_closes_it(environment: Environment, someone: Opens) -> None:
    holed(environment, 0)
    other, page = someone(environment).page, someone(environment).page
    expect(row(other, "train-2").locator("td.odd")).to_contain_text("closable", timeout=LIVE_MS)
    before = to_close(other)
    page.get_by_role("link", name=re.compile("closable")).first.click()
    expect(row(page, "train-2")).to_be_visible()
    expect(row(page, "train-1")).to_have_count(0)
    page.get_by_role("link", name="train-2").click()
    gpu = page.locator("article", has_text="GPU 0")
    expect(gpu).to_contain_text("A hole: there would be room for")
    gpu.get_by_role("button", name="Make room for one more 3g.40gb on GPU 0").click()
    expect(page.get_by_role("heading", name="Apply this plan?")).to_be_visible()
    expect(page.locator(".promise")).to_contain_text("move ")
    expect(page.locator(".promise")).to_contain_text("create d (3g.40gb on slices 4-7)")
    expect(page.get_by_role("row", name=re.compile("^destroy b "))).to_contain_text("moves to slice")
    expect(page.get_by_role("row", name=re.compile("^create . 1g.10gb"))).to_contain_text("moved from slice")
    expect(page.locator("#plan h4")).to_have_text(["Now", "Planned"])
    page.get_by_role("button", name="Destroy and create on GPU 0000:01:00.0").click()
    expect(page.get_by_role("heading", name="Result")).to_be_visible(timeout=LIVE_MS)
    expect(page.locator(".end.good")).to_contain_text("Done")
    expect(page.locator(".end.good")).to_contain_text(re.compile(r"took (less than )?\d+(\.\d)? s"))
    expect(page.locator("#plan h4")).to_have_text(["Before", "After"])
    until(lambda: to_close(other) == before - 1)
    page.get_by_role("link", name="Show the current state of train-2").click()
    expect(page.locator("article", has_text="GPU 0")).to_contain_text("3 instances", timeout=LIVE_MS)
    page.get_by_role("link", name="History of this node").click()
    expect(page.locator(".change").first).to_contain_text("on the page")


def test_the_same_by_keyboard_alone(environment: Environment, someone: Opens) -> None:
    holed(environment, 1)
    page = someone(environment).page
    page.goto(environment.url + TRAIN)
    button = page.get_by_role("button", name="Make room for one more 3g.40gb on GPU 1")
    expect(button).to_be_visible(timeout=LIVE_MS)
    page.reload()
    tab_to(page, button)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Apply this plan?")).to_be_visible()
    tab_to(page, page.locator(".confirm button"))
    page.keyboard.press("Enter")
    expect(page.locator(".end.good")).to_contain_text("Done", timeout=LIVE_MS)
    tab_to(page, page.get_by_role("link", name="Show the current state of train-2"))
    page.keyboard.press("Enter")
    expect(page.locator("article", has_text="GPU 1")).to_contain_text("3 instances", timeout=LIVE_MS)


def test_the_same_without_scripts(environment: Environment, someone: Opens) -> None:
    holed(environment, 2)
    page = someone(environment, java_script_enabled=False).page
    page.goto(environment.url + TRAIN)
    button = page.get_by_role("button", name="Make room for one more 3g.40gb on GPU 2")
    until(lambda: bool(button.count() or (page.reload() and button.count())), seconds=LIVE_MS / 1000)
    button.click()
    page.locator(".confirm button").click()
    ended = page.get_by_role("heading", name="Result")
    until(lambda: bool(ended.count() or (page.reload() and ended.count())), seconds=LIVE_MS / 1000)
    expect(page.locator(".end.good")).to_contain_text("Done")


def test_a_plan_that_is_blocked_shows_the_way_that_is_open(environment: Environment, someone: Opens) -> None:
    page = someone(environment).page
    page.goto(environment.url + "/nodes/train-1")
    page.get_by_role("link", name="GPU 0").click()
    page.get_by_label("Geometry").fill("1g.10gb*7")
    page.get_by_role("button", name="Plan this geometry").click()
    expect(page.get_by_role("heading", name="No valid plan")).to_be_visible()
    obstacle = page.locator(".obstacle")
    for part in ("HELD", "process", "add --policy wait"):
        expect(obstacle).to_contain_text(part)
    fits = obstacle.locator("dd").nth(2).inner_text()
    page.get_by_role("button", name=f"Plan what fits: {fits}").click()
    expect(page.get_by_role("heading", name="Apply this plan?")).to_be_visible()
    expect(page.locator(".promise")).to_contain_text("stays untouched")
    page.locator(".confirm button").click()
    expect(page.locator(".end.good")).to_contain_text("Done", timeout=LIVE_MS)
    expect(page.locator(".pair svg[role=img]").last).to_have_accessible_name(
        re.compile("after: 3g.40gb on slices 0-3, held; 1g.10gb on slice 4, new")
    )


def test_waiting_ends_when_the_holder_lets_go(environment: Environment, someone: Opens) -> None:
    environment.cut("train-2", 3, "2g.20gb@0")
    page = someone(environment).page
    page.goto(f"{environment.url}{TRAIN}/gpus/0000:04:00.0")
    expect(page.locator("#instances")).to_contain_text("2g.20gb", timeout=LIVE_MS)
    id = re.search(r"id (\d+)", page.locator("#instances").inner_text())
    assert id is not None
    environment.aliquot("sim", "hold", "3", id[1], "--sim", "train-2")
    expect(page.locator("#instances")).to_contain_text("held by process", timeout=LIVE_MS)
    page.get_by_label("Geometry").fill("empty")
    page.get_by_role("button", name="Plan this geometry").click()
    page.get_by_role("button", name="Plan it with waiting up to a minute").click()
    page.locator(".confirm button").click()
    expect(page.get_by_role("heading", name="In progress")).to_be_visible(timeout=LIVE_MS)
    expect(page.get_by_role("progressbar")).to_have_text("0 of 1")
    other = someone(environment).page
    other.goto(environment.url + TRAIN)
    expect(other.get_by_text("Being changed now by")).to_be_visible(timeout=LIVE_MS)
    environment.aliquot("sim", "release", "3", id[1], "--sim", "train-2")
    expect(page.locator(".end.good")).to_contain_text("Done", timeout=LIVE_MS)
    expect(other.get_by_text("Being changed now by")).to_have_count(0, timeout=LIVE_MS)


def test_what_is_done_by_hand_appears_and_drift_is_repaired(environment: Environment, someone: Opens) -> None:
    environment.cut("infer-1", 2, "1g.6gb*4")
    page, fleet = someone(environment).page, someone(environment).page
    page.goto(environment.url + "/nodes/infer-1")
    gpu = page.locator("article", has_text="GPU 2")
    expect(gpu).to_contain_text("4 instances: 0 held, 4 idle", timeout=LIVE_MS)
    page.evaluate("window.loaded = 'once'")
    listed = someone(environment).page
    listed.goto(page.url + "/gpus/0000:03:00.0")
    own = re.findall(r"id (\d+)", listed.locator("#instances").inner_text())
    environment.aliquot("sim", "hold", "2", own[0], "--sim", "infer-1")
    expect(gpu).to_contain_text("4 instances: 1 held, 3 idle", timeout=LIVE_MS)
    environment.aliquot("sim", "destroy", "2", own[1], "--sim", "infer-1")
    expect(gpu).to_contain_text("3 instances: 1 held, 2 idle", timeout=LIVE_MS)
    expect(page.get_by_role("heading", name="Drift")).to_be_visible(timeout=LIVE_MS)
    expect(row(fleet, "infer-1")).to_contain_text("1 difference", timeout=LIVE_MS)
    assert page.evaluate("window.loaded") == "once", "nothing was loaded again"
    page.get_by_role("button", name="Plan: restore the request").click()
    page.locator(".confirm button").click()
    expect(page.locator(".end.good")).to_contain_text("Done", timeout=LIVE_MS)
    expect(row(fleet, "infer-1")).not_to_contain_text("difference", timeout=LIVE_MS)
    environment.aliquot("sim", "release", "2", own[0], "--sim", "infer-1")
