"""Several users at once, some of them without permission."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from playwright.sync_api import Page, expect

from aliquot.dashboard.routes import ROUTES
from system.browser.conftest import Opens
from system.browser.fleet import Environment
from system.dashboard import stub
from system.dashboard.running import running
from system.dashboard.stub import StubSource

LIVE_MS = 30_000
LAB = "/nodes/lab/gpus/0000:02:00.0"


def asked(page: Page, environment: Environment, mig: str) -> None:
    """Open a plan for the second GPU of ``lab``."""
    page.goto(environment.url + LAB)
    page.get_by_label("Geometry").fill(mig)
    page.get_by_role("button", name="Plan this geometry").click()
    expect(page.get_by_role("heading", name="Apply this plan?")).to_be_visible()


def ended(page: Page, status: str) -> None:
    expect(page.get_by_role("heading", name="Result")).to_be_visible(timeout=LIVE_MS)
    expect(page.locator(f"#outcome .end.{status}")).to_be_visible()


def test_the_same_plan_is_carried_out_once(environment: Environment, someone: Opens) -> None:
    environment.cut("lab", 1, "1g.5gb")
    ann, ben = someone(environment).page, someone(environment).page
    asked(ann, environment, "1g.5gb,2g.10gb")
    ben.goto(ann.url)
    ann.locator(".confirm button").click()
    ended(ann, "good")
    ended(ben, "good")
    expect(ben.locator(".confirm button")).to_have_count(0)
    ben.reload()
    ended(ben, "good")
    reported = ben.locator("#outcome .end").inner_text()
    assert reported == ann.locator("#outcome .end").inner_text()
    assert reported.startswith("Done"), reported


def test_who_comes_second_learns_why_and_looks_again(environment: Environment, someone: Opens) -> None:
    environment.cut("lab", 1, "1g.5gb*2")
    ann, ben = someone(environment).page, someone(environment).page
    asked(ann, environment, "1g.5gb*2,3g.20gb")
    asked(ben, environment, "1g.5gb*3")
    ann.locator(".confirm button").click()
    ended(ann, "good")
    ben.locator(".confirm button").click()
    ended(ben, "odd")
    expect(ben.locator("#outcome")).to_contain_text("changed since")
    ben.get_by_role("button", name="Plan again").click()
    expect(ben.get_by_role("heading", name="Apply this plan?")).to_be_visible()
    expect(ben.locator(".promise")).to_contain_text("destroy")
    ben.locator(".confirm button").click()
    ended(ben, "good")


def test_a_wrong_token_opens_nothing(environment: Environment, someone: Opens) -> None:
    visitor = someone(environment)
    visitor.expect("status of 401")
    page = visitor.page
    page.get_by_role("button", name="Log out").click()
    page.get_by_label("Token").fill("not-the-token")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("Invalid token")
    page.goto(environment.url + LAB)
    expect(page.get_by_label("Token")).to_be_visible()
    page.get_by_label("Token").fill(environment.token)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text("GPU 1")


def test_a_plan_after_a_logout_elsewhere(environment: Environment, someone: Opens) -> None:
    # The plan from the form is not applied, and the page explains why.
    visitor = someone(environment)
    visitor.expect("status of 401", "status of 403")
    page = visitor.page
    page.goto(environment.url + LAB)
    other = visitor.context.new_page()
    other.goto(environment.url)
    other.get_by_role("button", name="Log out").click()
    expect(other.get_by_label("Token")).to_be_visible()
    expect(page.locator("#liveness")).to_contain_text("You are logged out.", timeout=LIVE_MS)
    page.get_by_role("button", name="Plan this geometry").click()
    expect(page.get_by_text("log in", exact=False).first).to_be_visible()
    other.close()


@contextmanager
def elsewhere(body: str) -> Iterator[str]:
    """Serve a page of another site."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://localhost:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_another_site_changes_nothing(environment: Environment, someone: Opens) -> None:
    environment.cut("lab", 1, "1g.5gb")
    visitor = someone(environment)
    visitor.expect("status of 401", "status of 403", "status of 404")
    page = visitor.page
    page.goto(environment.url + LAB)
    csrf = page.locator("input[name=csrf]").first.get_attribute("value")
    fields = {"csrf": csrf, "ask": "cut", "node": "lab", "gpu": "0000:02:00.0", "mig": "empty"}
    inputs = "".join(f"<input type=hidden name={name} value='{value}'>" for name, value in fields.items())
    trap = f"<form method=post action='{environment.url}/asks'>{inputs}<button>win a prize</button></form>"
    with elsewhere(trap) as address:
        page.goto(address)
        page.get_by_role("button", name="win a prize").click()
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        expect(page.get_by_role("heading", name="Apply this plan?")).to_have_count(0)
        page.goto("about:blank")
    assert "1g.5gb" in environment.aliquot("show", "--sim", "lab")


def test_a_session_that_is_too_old_ends_with_a_way_back(someone: Opens) -> None:
    with running(StubSource(stub.fleet()), ROUTES) as served:
        visitor = someone(served)
        visitor.expect("status of 401", "status of 403")
        page = visitor.page

        def age() -> None:
            for session in served.site.sessions.all:
                session.begun -= 13 * 3600

        served.call(age)
        expect(page.locator("#liveness")).to_contain_text("You are logged out.", timeout=LIVE_MS)
        expect(page.locator("body")).to_have_class("stale")
        page.locator("#liveness a").click()
        expect(page.get_by_label("Token")).to_be_visible()
        page.goto("about:blank")
