"""Limits of the pages in a browser: they load only from their own server and run no script that arrives in text."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from aliquot.dashboard.local.connect import open_local
from aliquot.dashboard.routes import ROUTES
from aliquot.sim import lifecycle as control
from aliquot.sim.client import SimClient
from system.browser.bed import Visitor
from system.dashboard.running import TOKEN, Running, running
from system.dashboard.toy import ROUTES as TOYS
from system.dashboard.toy import TEMPLATES, ToySource

PAGES = (
    "/",
    "/?q=one&sort=free",
    "/nodes/one",
    "/nodes/one/gpus/{gpu}",
    "/mig",
    "/sriov",
    "/vgpus",
    "/machines",
    "/history",
    "/nodes/one/gpus/0000:ff:00.0",
    "/nodes/none",
    "/nowhere",
    "/plans/none",
)


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    directory = tmp_path_factory.mktemp("state")
    control.start(str(directory), "a100-sxm4-40gb,a2", "one")
    node = SimClient(str(directory), "one")
    node.set_mode(0, True)
    node.create(0, "1g.5gb")
    yield directory
    control.stop(str(directory))


@pytest.fixture
def fleet(state: Path) -> Iterator[Running]:
    with running(functools.partial(open_local, None, fleet=True, state_dir=str(state)), ROUTES) as served:
        yield served


def test_no_page_does_what_its_policy_forbids(visitor: Visitor, fleet: Running, state: Path) -> None:
    # ``Visitor`` fails on every console error. A policy violation is such an error, and so is a script error.
    visitor.expect("status of 404", "status of 401")
    gpu = str(SimClient(str(state), "one").show()["gpus"][0]["pci"])
    page = visitor.page
    page.goto(f"{fleet.url}/login")
    page.get_by_label("Token").fill("wrong-token-of-somebody")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("Invalid token")
    page.get_by_label("Token").fill(TOKEN)
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_contain_text("one")
    for path in PAGES:
        page.goto(fleet.url + path.format(gpu=gpu))
        expect(page.locator("h1")).to_have_count(1)
        expect(page.get_by_role("main")).to_have_count(1)
        visitor.check()


def test_a_script_in_the_text_does_not_run(visitor: Visitor) -> None:
    # Proves that the bed detects violations. Otherwise the test above would prove nothing.
    with running(ToySource("n1"), TOYS, templates=TEMPLATES) as served:
        page = visitor.page
        page.goto(served.link)
        with page.expect_console_message(lambda message: "Content Security Policy" in message.text):
            page.evaluate("document.getElementById('main').innerHTML = '<img src=x onerror=\"window.ran = 1\">'")
        assert page.evaluate("window.ran") is None
        page.evaluate(
            "{const s = document.createElement('script'); s.text = 'window.ran = 1'; document.body.append(s)}"
        )
        assert page.evaluate("window.ran") is None
        assert any("Content Security Policy" in line for line in visitor.failure)
        visitor.expect("Content Security Policy", "404")


def test_hostile_names_stay_text_when_they_come_live(visitor: Visitor) -> None:
    source = ToySource("n1")
    with running(source, TOYS, templates=TEMPLATES) as served:
        page = visitor.page
        page.goto(served.link)
        hostile = "</td></tr></table><script>window.ran=1</script><img src=x onerror=window.ran=1><hx-partial id=main>"
        served.call(source.report, "n1", hostile)
        expect(page.locator("#n-n1 .said")).to_have_text(hostile)
        assert page.evaluate("window.ran") is None
        assert page.locator("main img, main script").count() == 0


def test_another_page_of_the_same_machine_can_neither_read_nor_post(visitor: Visitor) -> None:
    # Any user may have a port on a loopback address. To the browser that is the same site, and it sends cookies there.
    visitor.expect("status of 403", "CORS", "Failed to load resource")
    source = ToySource("n1")
    with (
        running(source, TOYS, templates=TEMPLATES) as served,
        running(ToySource("n2"), TOYS, templates=TEMPLATES) as evil,
    ):
        page = visitor.page
        page.goto(served.link)
        csrf = page.locator("input[name=csrf]").first.get_attribute("value")
        page.goto(evil.link)
        page.route(
            f"{evil.url}/trap", lambda route: route.fulfill(content_type="text/html", body=_trap(served.url, csrf))
        )
        page.goto(f"{evil.url}/trap")
        page.get_by_role("button", name="win a prize").click()
        expect(page.get_by_role("heading")).to_have_text("Permission denied")
        assert page.url == f"{served.url}/asks"
        assert not served.call(lambda: served.site.pending_changes._changes)
        page.goto(f"{evil.url}/trap")
        assert page.evaluate(
            f"fetch('{served.url}/', {{credentials: 'include'}}).then(() => 'read', () => 'refused')"
        ) == ("refused")


def _trap(target: str, csrf: str | None) -> str:
    fields = {"csrf": csrf, "ask": "cut", "node": "n1", "gpu": "0000:07:00.0", "mig": "disabled"}
    inputs = "".join(f"<input type=hidden name={name} value='{value}'>" for name, value in fields.items())
    return f"<form method=post action='{target}/asks'>{inputs}<button>win a prize</button></form>"
