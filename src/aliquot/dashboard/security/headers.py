"""What goes with every answer, and which names this server answers to.

A page of the web may let its own name point to 127.0.0.1 (DNS rebinding) and so read what is served there: the browser
takes it for the same origin. The name in ``Host`` gives it away. An address in numbers is nobody's name.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Iterable

from starlette.datastructures import MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from aliquot.dashboard.log import log

POLICY = (
    "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'; "
    "img-src 'self' data:"
)
# No Strict-Transport-Security: it would hold for every port of this host, whatever else is served there.
# Not no-referrer: browsers then say "Origin: null" with our own forms, and nobody could tell them from foreign ones.
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}
LOCAL = ("localhost",)


class SecurityMiddleware:
    """Stands before everything else. ``hosts`` are the names that people reach this server by, besides localhost."""

    def __init__(self, app: ASGIApp, hosts: Iterable[str] = ()) -> None:
        self._app = app
        self._hosts = {*LOCAL, *(name_of(host) for host in hosts)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("cache-control", "no-store")
            await send(message)

        if self._host_allowed(scope):
            try:
                await self._app(scope, receive, sending)
            except asyncio.CancelledError:
                log.info("%s %s was cut off by the end of the page", scope["method"], scope["path"])
            except Exception as error:  # noqa: BLE001 - it was answered: what is left is to say so, once
                log.error("%s %s broke", scope["method"], scope["path"], exc_info=error)
        else:
            text = "this server does not go by that name; whoever started it can allow it: --allowed-host NAME\n"
            await PlainTextResponse(text, 421, {"connection": "close"})(scope, receive, sending)

    def _host_allowed(self, scope: Scope) -> bool:
        values = [value for key, value in scope["headers"] if key == b"host"]
        if len(values) != 1:
            return False
        name = name_of(values[0].decode("latin-1"))
        return name in self._hosts or _is_address(name)


def name_of(host: str) -> str:
    """The name in ``name:port`` or ``[address]:port``, in small letters, without a dot at the end."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    if host.count(":") > 1:
        return host
    return host.partition(":")[0].rstrip(".")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
