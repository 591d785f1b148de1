"""A real browser: Debian's Chromium, driven by Playwright. Nothing is downloaded.

``chromium()`` starts a browser. A ``Visitor`` is a page in it that records script errors, violations of the content
security policy and requests to other hosts. ``Visitor.check()`` fails on any of them.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, sync_playwright

PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
PHONE = {"width": 360, "height": 740}
DESKTOP = {"width": 1280, "height": 900}


def program() -> str:
    """Return the path of the browser. Skips the test if none is installed."""
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
    """A user with an open page. ``failure`` is what a developer console would show in red."""

    def __init__(self, context: BrowserContext, folder: Path) -> None:
        self.context, self._folder = context, folder
        self.failure: list[str] = []
        self.expected: tuple[str, ...] = ()
        self.page: Page = context.new_page()
        self.page.set_default_timeout(20_000)
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.failure.append(f"script: {error}"))
        self.page.on("request", self._asked)

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.failure.append(f"{message.type}: {message.text}")

    def _asked(self, request: Request) -> None:
        if not request.url.startswith(("http://127.0.0.1", "http://localhost", "data:", "blob:")):
            self.failure.append(f"asked another machine: {request.url}")

    def expect(self, *parts: str) -> None:
        """Expect errors that contain one of these words: the test is about them."""
        self.expected = (*self.expected, *parts)

    def check(self) -> None:
        """Fail on any error that the test did not expect."""
        left = [line for line in self.failure if not any(part in line for part in self.expected)]
        assert not left, "\n".join(left)

    def screenshot(self, name: str, *, whole: bool = True) -> Path:
        """Save a picture of the page in the test's own folder."""
        path = self._folder / f"{name}.png"
        self.page.screenshot(path=path, full_page=whole)
        return path

    def tree(self) -> str:
        """Return what a screen reader gets, as Playwright writes it (YAML of roles and names)."""
        return self.page.locator("body").aria_snapshot()


@contextmanager
def visitor(browser: Browser, folder: Path, *, size: dict[str, int] | None = None, **given: Any) -> Iterator[Visitor]:
    """Open a page with a new profile: no cookies, no cache. ``given`` goes to Playwright (``color_scheme="dark"``)."""
    context = browser.new_context(viewport=size or DESKTOP, **given)  # type: ignore[arg-type]
    someone = Visitor(context, folder)
    try:
        yield someone
    finally:
        context.close()
