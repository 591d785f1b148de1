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
from aliquot.dashboard.application_context import Settings, Site
from aliquot.dashboard.log import log
from aliquot.dashboard.options import Options
from aliquot.dashboard.page_metrics import Figures
from aliquot.dashboard.ports import Door, Source
from aliquot.dashboard.routes import ROUTES
from aliquot.dashboard.security.token_authenticator import TokenDoor
from aliquot.dashboard.server import PageServer, first_of, tls_context
from aliquot.foundation import driver_calls
from aliquot.foundation.process_end import leave_if_hung
from aliquot.foundation.signals import asked_to_end

SETTLE_S = 600.0
"""How long the end waits for a change: cutting a whole machine anew takes a few minutes."""

Say = Callable[[str], None]


class Opened(msgspec.Struct, frozen=True):
    """What is shown, and who may come in. ``secret`` is a token that nobody knows yet, "" for none."""

    source: Source
    door: Door
    secret: str = ""


def run(options: Options, open: Callable[[], Awaitable[Opened]], say: Say, result: Say) -> int:
    """Serve until SIGINT, SIGTERM or SIGHUP. ``result`` gets the address to open, ``say`` everything else.

    Raises UsageError for a port that is taken and the like, and whatever ``open`` raises.
    """
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    for chatty in ("uvicorn.error", "httpx2"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    code = asyncio.run(_main(options, open, say, result))
    leave_if_hung(code, log.warning)
    return code


async def _main(options: Options, open: Callable[[], Awaitable[Opened]], say: Say, result: Say) -> int:
    tls = tls_context(options.certificate, options.key) if options.certificate else None
    server = PageServer(options.address, options.port, tls)
    try:
        opened = await open()
        figures = Figures(opened.source)
        settings = Settings(
            hosts=_names(options, server),
            trusted=options.allowed,
            secure=tls is not None,
            read_only=options.read_only,
            port=server.port,
            extra={"/metrics": figures.endpoint},
            extra_open=options.loopback,
        )
        site = figures.site = Site(ROUTES, figures.counted, opened.door, settings)
        try:
            return await _serve(server, site, opened, say, result)
        finally:
            await opened.source.aclose()
    finally:
        server.close()


async def _serve(server: PageServer, site: Site, opened: Opened, say: Say, result: Say) -> int:
    stop = asyncio.Event()
    ending = contextlib.ExitStack()
    ending.enter_context(asked_to_end(stop.set, asyncio.get_running_loop()))
    looking = asyncio.create_task(site.source.run(), name="source")
    serving = asyncio.create_task(server.serve(application(site)), name="server")
    stopping = asyncio.create_task(_set(stop), name="stop")
    try:
        _announce(server, site, opened, say, result)
        await first_of(looking, serving, stopping)
        await _settle(site, stop, say)
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


def _announce(server: PageServer, site: Site, opened: Opened, say: Say, result: Say) -> None:
    door = opened.door
    if isinstance(door, TokenDoor) and opened.secret:
        result(f"{server.url}/login?token={door.ticket()}")
        say("Open this link within ten minutes; it works once, and then this browser is logged in for twelve hours.")
        say(f"Other browsers log in at {server.url} with the token {opened.secret}")
    else:
        result(f"{server.url}/")
        say(f"Log in with {door.hint}.")
    if site.settings.read_only:
        say("Everybody may look, nobody can change anything (--read-only).")
    say("Ctrl-C ends the page.")


async def _settle(site: Site, stop: asyncio.Event, say: Say) -> None:
    """A change is not left alone: whoever started it wants to know how it ended. A second Ctrl-C leaves it."""
    if await site.desk.settle(0.0):
        return
    titles = "; ".join(sheet.preview.title for sheet in site.desk.running)
    say(f"A change is under way ({titles}): waiting up to {SETTLE_S / 60:g} minutes for its end.")
    say("Ctrl-C again ends this at once; the journal knows what was done, and the next apply finishes or undoes it.")
    stop.clear()
    again = asyncio.create_task(_set(stop))
    hung = asyncio.create_task(_hung())
    settling = asyncio.create_task(site.desk.settle(SETTLE_S))
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
    while driver_calls.hang(bound_s) is None:
        await asyncio.sleep(1.0)


def _names(options: Options, server: PageServer) -> tuple[str, ...]:
    """The names that browsers may ask for. Addresses in numbers need no leave."""
    with contextlib.suppress(ValueError):
        ipaddress.ip_address(options.address)
        import socket

        own = () if options.loopback else (socket.gethostname(), socket.getfqdn())
        return (*own, *options.allowed)
    return (options.address, *options.allowed)
