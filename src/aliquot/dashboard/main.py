"""Running a page until somebody ends it: source, door and server, and an end that waits for a change under way."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import os
from collections.abc import Awaitable, Callable

import msgspec

from aliquot.dashboard.app import application
from aliquot.dashboard.application_context import Site, SiteSettings
from aliquot.dashboard.log import log
from aliquot.dashboard.options import DashboardOptions
from aliquot.dashboard.page_metrics import DashboardMetrics
from aliquot.dashboard.ports import Authenticator, FleetSource
from aliquot.dashboard.routes import ROUTES
from aliquot.dashboard.security.token_authenticator import TokenAuthenticator
from aliquot.dashboard.server import PageServer, first_of, tls_context
from aliquot.foundation import driver_calls
from aliquot.foundation.callbacks import Report
from aliquot.foundation.process_end import leave_if_hung
from aliquot.foundation.signals import stop_on_signal

SETTLE_S = 600.0
"""How long the end waits for a change: cutting a whole machine anew takes a few minutes."""


class ServedSource(msgspec.Struct, frozen=True):
    """What is shown, and who may come in. ``secret`` is a token that nobody knows yet, "" for none."""

    source: FleetSource
    authenticator: Authenticator
    secret: str = ""


def run(options: DashboardOptions, open: Callable[[], Awaitable[ServedSource]], note: Report, result: Report) -> int:
    """Serve until SIGINT, SIGTERM or SIGHUP. ``result`` gets the address to open, ``note`` everything else.

    Raises UsageError for a port that is taken and the like, and whatever ``open`` raises.
    """
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    for chatty in ("uvicorn.error", "httpx2"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    code = asyncio.run(_main(options, open, note, result))
    leave_if_hung(code, log.warning)
    return code


async def _main(
    options: DashboardOptions, open: Callable[[], Awaitable[ServedSource]], note: Report, result: Report
) -> int:
    tls = tls_context(options.certificate, options.key) if options.certificate else None
    server = PageServer(options.address, options.port, tls)
    try:
        served = await open()
        metrics = DashboardMetrics(served.source)
        settings = SiteSettings(
            hosts=_names(options, server),
            trusted=options.allowed,
            secure=tls is not None,
            read_only=options.read_only,
            port=server.port,
            extra={"/metrics": metrics.endpoint},
            extra_open=options.loopback,
        )
        site = metrics.site = Site(ROUTES, metrics.counting_source, served.authenticator, settings)
        try:
            return await _serve(server, site, served, note, result)
        finally:
            await served.source.aclose()
    finally:
        server.close()


async def _serve(server: PageServer, site: Site, served: ServedSource, note: Report, result: Report) -> int:
    stop = asyncio.Event()
    ending = contextlib.ExitStack()
    ending.enter_context(stop_on_signal(stop.set, asyncio.get_running_loop()))
    looking = asyncio.create_task(site.source.run(), name="source")
    serving = asyncio.create_task(server.serve(application(site)), name="server")
    stopping = asyncio.create_task(_set(stop), name="stop")
    try:
        _announce(server, site, served, note, result)
        await first_of(looking, serving, stopping)
        await _settle(site, stop, note)
        return 0
    finally:
        site.close()
        server.stop()
        looking.cancel()
        stopping.cancel()
        await asyncio.gather(looking, serving, stopping, return_exceptions=True)
        ending.close()


async def _set(event: asyncio.Event) -> None:
    await event.wait()


def _announce(server: PageServer, site: Site, served: ServedSource, note: Report, result: Report) -> None:
    authenticator = served.authenticator
    if isinstance(authenticator, TokenAuthenticator) and served.secret:
        result(f"{server.url}/login?token={authenticator.ticket()}")
        note("Open this link within ten minutes; it works once, and then this browser is logged in for twelve hours.")
        note(f"Other browsers log in at {server.url} with the token {served.secret}")
    else:
        result(f"{server.url}/")
        note(f"Log in with {authenticator.hint}.")
    if site.settings.read_only:
        note("Everybody may look, nobody can change anything (--read-only).")
    note("Ctrl-C ends the page.")


async def _settle(site: Site, stop: asyncio.Event, note: Report) -> None:
    """A change is not left alone: whoever started it wants to know how it ended. A second Ctrl-C leaves it."""
    if await site.pending_changes.settle(0.0):
        return
    titles = "; ".join(change.preview.title for change in site.pending_changes.running)
    note(f"A change is under way ({titles}): waiting up to {SETTLE_S / 60:g} minutes for its end.")
    note("Ctrl-C again ends this at once; the journal knows what was done, and the next apply finishes or undoes it.")
    stop.clear()
    again = asyncio.create_task(_set(stop))
    hung = asyncio.create_task(_hung())
    settling = asyncio.create_task(site.pending_changes.settle(SETTLE_S))
    await asyncio.wait((again, hung, settling), return_when=asyncio.FIRST_COMPLETED)
    again.cancel()
    hung.cancel()
    if settling.done() and settling.result():
        return  # the log told how it ended
    log.warning("left a change under way: %s", titles)
    logging.shutdown()
    os._exit(130)  # a thread is at the hardware: nothing here could end it in order


async def _hung() -> None:
    """Returns when a driver call hangs: a change that waits for it is not waited for."""
    bound_s = driver_calls.hangs_s()
    while driver_calls.find_hang(bound_s) is None:
        await asyncio.sleep(1.0)


def _names(options: DashboardOptions, server: PageServer) -> tuple[str, ...]:
    """The names that browsers may ask for. Addresses in numbers need no leave."""
    with contextlib.suppress(ValueError):
        ipaddress.ip_address(options.address)
        import socket

        own = () if options.loopback else (socket.gethostname(), socket.getfqdn())
        return (*own, *options.allowed)
    return (options.address, *options.allowed)
