"""The dashboard's main loop: source, authenticator and server, and a shutdown that waits for a running change."""

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
"""How long the shutdown waits for a change. Repartitioning all GPUs of a node takes a few minutes."""


class ServedSource(msgspec.Struct, frozen=True):
    """A source and its authenticator. ``secret`` is a newly generated token to print, "" if there is none."""

    source: FleetSource
    authenticator: Authenticator
    secret: str = ""


def run(options: DashboardOptions, open: Callable[[], Awaitable[ServedSource]], note: Report, result: Report) -> int:
    """Serve until SIGINT, SIGTERM or SIGHUP. ``result`` receives the URL to open, ``note`` all other output.

    Raises UsageError if, for example, the port is in use, and the errors of ``open``.
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
        note(f"For other browsers, log in at {server.url} with the token {served.secret}")
    else:
        result(f"{server.url}/")
        note(f"Log in with {authenticator.hint}.")
    if site.settings.read_only:
        note("Read-only: changes are disabled (--read-only).")
    note("Press Ctrl-C to stop the dashboard.")


async def _settle(site: Site, stop: asyncio.Event, note: Report) -> None:
    """Wait for a running change, because its user needs the result. A second Ctrl-C stops the wait."""
    if await site.pending_changes.settle(0.0):
        return
    titles = "; ".join(change.preview.title for change in site.pending_changes.running)
    note(f"A change is in progress ({titles}): waiting up to {SETTLE_S / 60:g} minutes for its end.")
    note("Press Ctrl-C again to stop at once. The journal records the steps; the next apply completes or reverts them.")
    stop.clear()
    again = asyncio.create_task(_set(stop))
    hung = asyncio.create_task(_hung())
    settling = asyncio.create_task(site.pending_changes.settle(SETTLE_S))
    await asyncio.wait((again, hung, settling), return_when=asyncio.FIRST_COMPLETED)
    again.cancel()
    hung.cancel()
    if settling.done() and settling.result():
        return  # the log has the result
    log.warning("stopped while a change was in progress: %s", titles)
    logging.shutdown()
    os._exit(130)  # a thread is in a driver call and cannot be stopped cleanly


async def _hung() -> None:
    """Return once a driver call hangs. A change that depends on it is not awaited."""
    bound_s = driver_calls.hangs_s()
    while driver_calls.find_hang(bound_s) is None:
        await asyncio.sleep(1.0)


def _names(options: DashboardOptions, server: PageServer) -> tuple[str, ...]:
    """Return the host names that browsers may use. IP addresses are always allowed."""
    with contextlib.suppress(ValueError):
        ipaddress.ip_address(options.address)
        import socket

        own = () if options.loopback else (socket.gethostname(), socket.getfqdn())
        return (*own, *options.allowed)
    return (options.address, *options.allowed)
