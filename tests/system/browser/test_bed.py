"""The test bed itself: it serves a page, a user logs in with the link, and changes arrive without a reload."""

from __future__ import annotations

from playwright.sync_api import expect

from system.browser.bed import Visitor
from system.dashboard.running import running
from system.dashboard.toy import ROUTES, TEMPLATES, ToySource


def test_a_link_logs_in_and_the_page_is_live(visitor: Visitor) -> None:
    source = ToySource("n1", "n2")
    with running(source, ROUTES, templates=TEMPLATES) as dashboard:
        page = visitor.page
        page.goto(dashboard.link)
        assert page.url == f"{dashboard.url}/", "the ticket is out of the address bar"
        expect(page.locator("#n-n1 .said")).to_have_text("")
        dashboard.call(source.report, "n1", "changed <b>now</b>")
        expect(page.locator("#n-n1 .said")).to_have_text("changed <b>now</b>")
        assert visitor.screenshot("toy").stat().st_size > 1000
        assert "table" in visitor.tree()
        page.goto("about:blank")
