"""A dashboard served by a thread of this process, with any source."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import jinja2

from aliquot.dashboard.app import application
from aliquot.dashboard.application_context import Site, SiteSettings
from aliquot.dashboard.page import Route
from aliquot.dashboard.ports import FleetSource
from aliquot.dashboard.security.token_authenticator import TokenAuthenticator
from aliquot.dashboard.server import PageServer
from aliquot.dashboard.view_models import Person

TOKEN = "a-token-for-tests-alone"
T = TypeVar("T")


class Running:
    """A running dashboard at ``url``. ``call`` runs a function on the server's event loop."""

    def __init__(
        self, url: str, site: Site, authenticator: TokenAuthenticator, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.url, self.site, self.user, self._loop = url, site, authenticator, loop

    def call(self, act: Callable[..., T], *given: Any) -> T:
        """Run a function on the server's loop and return its result."""

        async def once() -> T:
            return act(*given)

        return asyncio.run_coroutine_threadsafe(once(), self._loop).result(30)

    @property
    def link(self) -> str:
        """A login link, valid once."""
        return f"{self.url}/login?token={self.call(self.user.ticket)}"


@contextmanager
def running(
    source: FleetSource | Callable[[], FleetSource],
    routes: tuple[Route, ...],
    *,
    settings: SiteSettings | None = None,
    person: Person | None = None,
    templates: jinja2.BaseLoader | None = None,
    port: int = 0,
) -> Iterator[Running]:
    """Serve on a free loopback port, or on ``port``, until the block ends.

    A source that needs a running loop is given as a function that opens it there.
    """
    reported: list[Running] = []
    ready, over = threading.Event(), threading.Event()
    faults: list[BaseException] = []

    async def main() -> None:
        shown = source() if callable(source) else source
        server = PageServer("127.0.0.1", port)
        authenticator = TokenAuthenticator(TOKEN, person or Person("tester"), "the token of the test")
        site = Site(routes, shown, authenticator, settings or SiteSettings(port=server.port), templates)
        reported.append(Running(server.url, site, authenticator, asyncio.get_running_loop()))
        looking = asyncio.create_task(shown.run())
        serving = asyncio.create_task(server.serve(application(site)))
        ready.set()
        while not over.is_set() and not serving.done() and not looking.done():
            await asyncio.sleep(0.02)
        server.stop()
        site.close()
        await serving
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
        await shown.aclose()
        server.close()

    def thread() -> None:
        try:
            asyncio.run(main())
        except BaseException as fault:  # noqa: BLE001 - raised in the test's own thread
            faults.append(fault)
        finally:
            ready.set()

    worker = threading.Thread(target=thread, name="dashboard")
    worker.start()
    try:
        assert ready.wait(30)
        if not faults:
            yield reported[0]
    finally:
        over.set()
        worker.join(30)
    if faults:
        raise faults[0]
