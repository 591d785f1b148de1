"""An open page while data changes: user input stays, new values appear, and stale data is marked."""

from __future__ import annotations

from playwright.sync_api import expect

from aliquot.dashboard.view_models import ObservedNode
from support.processes import until
from system.browser.bed import Visitor
from system.dashboard.running import running
from system.dashboard.toy import ROUTES, TEMPLATES, ToySource

STALE = "Connection lost at"


def test_what_a_user_is_typing_survives_a_change(visitor: Visitor) -> None:
    names = [f"n{n:02}" for n in range(80)]
    source = ToySource(*names)
    with running(source, ROUTES, templates=TEMPLATES) as served:
        page = visitor.page
        page.goto(served.link)
        field = page.locator("#typed-n40")
        field.scroll_into_view_if_needed()
        field.press_sequentially("half a wo")
        page.locator("#n-n41 summary").click()
        field.focus()
        page.evaluate("document.getElementById('typed-n40').setSelectionRange(2, 4)")
        before = page.evaluate("scrollY")
        assert before > 0
        for answer in ("one", "two"):
            served.call(source.report, "n40", answer)
            served.call(source.report, "n41", answer)
            expect(page.locator("#n-n40 .said")).to_have_text(answer)
            expect(page.locator("#n-n41 .said")).to_have_text(answer)
        served.call(source.set, *(ObservedNode(name) for name in ("n00", "new", *names[2:])))
        expect(page.locator("#n-new")).to_be_visible()
        expect(page.locator("#n-n01")).to_have_count(0)
        expect(page.locator("tr")).to_have_count(80)
        assert page.locator("tr").evaluate_all("rows => rows.map(r => r.id.slice(2))") == ["n00", "new", *names[2:]]
        expect(field).to_be_focused()
        expect(field).to_have_value("half a wo")
        assert page.evaluate("[document.activeElement.selectionStart, document.activeElement.selectionEnd]") == [2, 4]
        assert page.evaluate("scrollY") == before
        expect(page.locator("#n-n41 details p")).to_be_visible()
        expect(page.locator("#n-n42 details p")).to_be_hidden()


def test_a_server_that_ends_is_reported_and_after_its_return_that_one_must_log_in(visitor: Visitor) -> None:
    visitor.expect("ERR_", "Failed to load resource")
    page = visitor.page
    state = page.locator("#liveness")
    with running(ToySource("n1"), ROUTES, templates=TEMPLATES) as served:
        port = int(served.url.rpartition(":")[2])
        page.goto(served.link)
        expect(page.locator("#n-n1")).to_be_visible()
        until(lambda: served.call(lambda: sum(s.streams for s in served.site.sessions.all)) == 1)
        expect(state).to_be_hidden()
    expect(state).to_contain_text(STALE)
    expect(page.locator("#n-n1")).to_be_visible()
    with running(ToySource("n1"), ROUTES, templates=TEMPLATES, port=port):
        expect(state).to_contain_text("You are logged out.", timeout=40_000)


def test_a_stream_that_breaks_is_reported_and_comes_back_with_what_was_missed(visitor: Visitor) -> None:
    visitor.expect("ERR_", "Failed to load resource")
    source = ToySource("n1", "n2")
    with running(source, ROUTES, templates=TEMPLATES) as served:
        page = visitor.page
        state = page.locator("#liveness")
        page.route("**/live?*", lambda route: route.abort())
        page.goto(served.link)
        expect(state).to_contain_text(STALE)
        assert page.locator("body").get_attribute("class") == "stale"
        assert state.get_attribute("role") == "status"
        served.call(source.report, "n1", "missed")
        page.unroute("**/live?*")
        expect(page.locator("#n-n1 .said")).to_have_text("missed")
        expect(state).to_be_hidden()
        assert "stale" not in (page.locator("body").get_attribute("class") or "")


def test_silence_is_taken_for_a_loss(visitor: Visitor) -> None:
    # A connection can die without notice: an unplugged network cable, a suspended laptop.
    visitor.expect("ERR_", "Failed to load resource")
    with running(ToySource("n1"), ROUTES, templates=TEMPLATES) as served:
        page = visitor.page
        page.clock.install()
        page.goto(served.link)
        expect(page.locator("#n-n1")).to_be_visible()
        page.route("**/live?*", lambda route: route.abort())
        page.clock.run_for(26_000)
        expect(page.locator("#liveness")).to_contain_text(STALE)


def test_a_logout_elsewhere_ends_the_page_with_a_way_back(visitor: Visitor) -> None:
    with running(ToySource("n1"), ROUTES, templates=TEMPLATES) as served:
        page = visitor.page
        page.goto(served.link)
        other = visitor.context.new_page()
        other.goto(served.url)
        other.get_by_role("button", name="Log out").click()
        expect(other.get_by_role("heading", name="Log in")).to_be_visible()
        page.bring_to_front()
        expect(page.locator("#liveness")).to_contain_text("You are logged out.")
        page.locator("#liveness a").click()
        expect(page.get_by_label("Token")).to_be_visible()


def test_a_hidden_page_keeps_no_stream(visitor: Visitor) -> None:
    with running(ToySource("n1"), ROUTES, templates=TEMPLATES) as served:
        page = visitor.page
        page.goto(served.link)
        page.goto("about:blank")
        until(lambda: served.call(lambda: sum(s.streams for s in served.site.sessions.all)) == 0)


def test_a_change_is_followed_to_its_end(visitor: Visitor) -> None:
    source = ToySource("n1")
    source.hold.clear()
    with running(source, ROUTES, templates=TEMPLATES) as served:
        page = visitor.page
        page.goto(served.link)
        csrf = page.locator("input[name=csrf]").first.get_attribute("value")
        form: dict[str, str | float | bool] = {
            "csrf": str(csrf),
            "ask": "cut",
            "node": "n1",
            "gpu": "0000:07:00.0",
            "mig": "1g.5gb",
        }
        made = visitor.context.request.post(f"{served.url}/asks", form=form, headers={"origin": served.url})
        page.goto(made.url)
        expect(page.locator(".state")).to_have_text("waiting")
        page.get_by_role("button", name="Apply").dblclick()
        expect(page.locator("li", has_text="first")).to_be_visible()
        expect(page.locator(".state")).to_have_text("running")
        source.hold.set()
        expect(page.locator(".done")).to_have_text("done")
        assert len(source.applied) == 1, "two clicks are one change"
