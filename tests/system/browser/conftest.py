"""One browser for the tests of this folder that run in a row, a fresh profile for each test.

Not for a whole run: while Playwright is started, this thread's event loop counts as running, and no test of another
folder that runs one of its own could.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

import pytest
from playwright.sync_api import Browser, expect

from system.browser import bed
from system.browser.world import World
from system.dashboard.running import TOKEN

Opens = Callable[..., bed.Visitor]
"""``someone(served, size=bed.PHONE)``: one more person, logged in, with a browser profile of their own."""


class Served(Protocol):
    @property
    def url(self) -> str: ...


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with bed.chromium() as started:
        yield started


@pytest.fixture
def visitor(browser: Browser, tmp_path: Path) -> Iterator[bed.Visitor]:
    """Not logged in: ``visitor.page.goto(running.link)`` does it. Anything red in the console fails the test."""
    with bed.visitor(browser, tmp_path) as someone:
        yield someone
        someone.check()


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """The fleet of ``make dashboard``. Tests that change it put their GPU into the state that they need first."""
    bed.program()
    with World(tmp_path_factory.mktemp("w")) as started:
        yield started


@pytest.fixture
def someone(browser: Browser, tmp_path: Path) -> Iterator[Opens]:
    """Opens the page for one more person. Anything red in anybody's console fails the test."""
    with ExitStack() as open_ones:
        people: list[bed.Visitor] = []

        def enter(served: Served, **given: Any) -> bed.Visitor:
            one = open_ones.enter_context(bed.visitor(browser, tmp_path / str(len(people)), **given))
            token = getattr(served, "token", TOKEN)
            if given:  # on another screen, or without scripts: log in there as people do
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
