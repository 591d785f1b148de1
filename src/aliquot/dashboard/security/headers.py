"""Security headers of every response, and the check of the ``Host`` header against DNS rebinding.

With DNS rebinding, a web page lets its own name point to 127.0.0.1. The browser then treats this server as the same
origin and lets the page read it. The ``Host`` header reveals the name. IP addresses are safe, because they need no DNS.
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
# No Strict-Transport-Security: it would apply to all other servers on this host.
# Not no-referrer: with it, browsers send "Origin: null" for the page's own forms, as for those of other sites.
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
    """ASGI middleware around the whole application. ``hosts`` are allowed host names besides localhost."""

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
                log.info("%s %s was interrupted by the shutdown", scope["method"], scope["path"])
            except Exception as error:  # noqa: BLE001 - the response was sent: only log the error
                log.error("internal error in %s %s", scope["method"], scope["path"], exc_info=error)
        else:
            text = "host name not allowed: restart the dashboard with --allowed-host NAME\n"
            await PlainTextResponse(text, 421, {"connection": "close"})(scope, receive, sending)

    def _host_allowed(self, scope: Scope) -> bool:
        values = [value for key, value in scope["headers"] if key == b"host"]
        if len(values) != 1:
            return False
        name = name_of(values[0].decode("latin-1"))
        return name in self._hosts or _is_address(name)


def name_of(host: str) -> str:
    """Return the name in ``name:port`` or ``[address]:port``, in lower case and without a trailing dot."""
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
