"""A real browser: Debian's Chromium, driven by Playwright. Nothing is downloaded.

``chromium()`` gives a browser, ``Visitor`` a page in it that remembers whatever went wrong: errors of scripts, what the
content security policy refused, requests that left this machine. ``Visitor.check()`` fails on any of them.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, sync_playwright

PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
PHONE = {"width": 360, "height": 740}
DESK = {"width": 1280, "height": 900}


def program() -> str:
    """The browser's path. Skips the test where there is none."""
    found = next((path for name in PROGRAMS if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("no Chromium is installed")
    return found


@contextmanager
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program(), args=["--no-sandbox", "--disable-gpu"])
        try:
            yield browser
        finally:
            browser.close()


class Visitor:
    """Somebody at a page. ``trouble`` is what a developer's console would show in red."""

    def __init__(self, context: BrowserContext, folder: Path) -> None:
        self.context, self._folder = context, folder
        self.trouble: list[str] = []
        self.expected: tuple[str, ...] = ()
        self.page: Page = context.new_page()
        self.page.set_default_timeout(20_000)
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.trouble.append(f"script: {error}"))
        self.page.on("request", self._asked)

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.trouble.append(f"{message.type}: {message.text}")

    def _asked(self, request: Request) -> None:
        if not request.url.startswith(("http://127.0.0.1", "http://localhost", "data:", "blob:")):
            self.trouble.append(f"asked another machine: {request.url}")

    def expect(self, *parts: str) -> None:
        """Trouble with one of these words in it is what the test is about."""
        self.expected = (*self.expected, *parts)

    def check(self) -> None:
        """Fails if anything went wrong that the test did not expect."""
        left = [line for line in self.trouble if not any(part in line for part in self.expected)]
        assert not left, "\n".join(left)

    def screenshot(self, name: str, *, whole: bool = True) -> Path:
        """A picture of the page, in the test's own folder."""
        path = self._folder / f"{name}.png"
        self.page.screenshot(path=path, full_page=whole)
        return path

    def tree(self) -> str:
        """What a screen reader is told, as Playwright writes it (YAML of roles and names)."""
        return self.page.locator("body").aria_snapshot()


def until(holds: Callable[[], bool], seconds: float = 30) -> None:
    """Waits for something that is not in the page."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@contextmanager
def visitor(browser: Browser, folder: Path, *, size: dict[str, int] | None = None, **given: Any) -> Iterator[Visitor]:
    """A fresh profile: no cookies, no cache. ``given`` goes to Playwright (``color_scheme="dark"``)."""
    context = browser.new_context(viewport=size or DESK, **given)  # type: ignore[arg-type]
    someone = Visitor(context, folder)
    try:
        yield someone
    finally:
        context.close()
