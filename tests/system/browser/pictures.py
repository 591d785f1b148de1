"""``python -m system.browser.pictures FOLDER``: take the documentation's pictures of the pages that ``make dashboard``
shows.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, Page, expect

from system.browser import bed
from system.browser.fleet import Environment

SIZE = {"width": 1200, "height": 800}
GPU = "/nodes/train-2/gpus/0000:01:00.0"


def taken(browser: Browser, environment: Environment, folder: Path) -> list[Path]:
    """Take the pictures and return their files: the fleet, and a plan that closes a hole in it."""
    with bed.visitor(browser, folder, size=SIZE) as someone:
        page = someone.page
        _log_in(page, environment)
        expect(page.locator("tr", has_text="train-2").locator("svg.strip")).to_be_visible()
        fleet = someone.screenshot("fleet")
        page.goto(environment.url + GPU)
        page.get_by_role("button", name="Make room for one more 3g.40gb").click()
        expect(page.get_by_role("heading", name="Apply this plan?")).to_be_visible()
        plan = someone.screenshot("plan")
        someone.check()
    return [fleet, plan]


def _log_in(page: Page, environment: Environment) -> None:
    page.goto(environment.url + "/login")
    page.get_by_label("Token").fill(environment.token)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Fleet")).to_be_visible()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch, bed.chromium() as found, Environment(Path(scratch)) as shown:
        for picture in taken(found, shown, Path(sys.argv[1])):
            print(picture)
