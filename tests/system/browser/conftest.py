"""A browser shared by consecutive tests of this folder, with a fresh profile for each test.

Its scope is not the whole run. While Playwright is started, the event loop of this thread counts as running. A test of
another folder could then not run its own loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

import pytest
from playwright.sync_api import Browser, expect

from system.browser import bed
from system.browser.fleet import Environment
from system.dashboard.running import TOKEN

Opens = Callable[..., bed.Visitor]
"""``someone(served, size=bed.PHONE)``: another user, logged in, with a separate browser profile."""


class Served(Protocol):
    @property
    def url(self) -> str: ...


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with bed.chromium() as started:
        yield started


@pytest.fixture
def visitor(browser: Browser, tmp_path: Path) -> Iterator[bed.Visitor]:
    """Open a page that is not logged in: ``visitor.page.goto(running.link)`` logs in. Console errors fail the test."""
    with bed.visitor(browser, tmp_path) as someone:
        yield someone
        someone.check()


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    """Start the fleet of ``make dashboard``. A test that changes it first puts its GPU into the state that it needs."""
    bed.program()
    with Environment(tmp_path_factory.mktemp("w")) as started:
        yield started


@pytest.fixture
def someone(browser: Browser, tmp_path: Path) -> Iterator[Opens]:
    """Return a function that opens the page for another user. An error in any user's console fails the test."""
    with ExitStack() as open_ones:
        people: list[bed.Visitor] = []

        def enter(served: Served, **given: Any) -> bed.Visitor:
            one = open_ones.enter_context(bed.visitor(browser, tmp_path / str(len(people)), **given))
            token = getattr(served, "token", TOKEN)
            if given:  # another screen, or no scripts: log in with the form
                one.page.goto(f"{served.url}/login")
                one.page.get_by_label("Token").fill(token)
                one.page.get_by_role("button", name="Log in").click()
            else:
                one.context.request.post(f"{served.url}/login", form={"token": token}, headers={"origin": served.url})
                one.page.goto(served.url)
            expect(one.page.get_by_role("button", name="Log out")).to_be_visible()
            people.append(one)
            return one

        yield enter
        for one in people:
            one.page.goto("about:blank")
            one.check()
