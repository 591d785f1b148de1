"""Serving a page: sockets, certificates, and an end that leaves no change half-watched."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp

from aliquot.dashboard.connection_limits import LimitedConnection
from aliquot.errors import UsageError

BACKLOG = 64
"""So many connections are accepted at once, before any of them is looked at."""


class _Server(uvicorn.Server):
    """Signals are the program's own business."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class PageServer:
    """Listens at once, and answers once ``serve`` runs. ``port`` 0 takes a free one."""

    def __init__(self, address: str, port: int, tls: ssl.SSLContext | None = None) -> None:
        self._socket = listen(address, port)
        # Inherited by what is accepted: an answer's head and body would else be 40 ms apart on a kept connection.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.address, self.port = address, int(self._socket.getsockname()[1])
        self._tls = tls
        self._server: _Server | None = None

    @property
    def url(self) -> str:
        host = {"0.0.0.0": socket.gethostname(), "::": socket.gethostname(), "": socket.gethostname()}.get(
            self.address, f"[{self.address}]" if ":" in self.address else self.address
        )
        return f"{'https' if self._tls else 'http'}://{host}:{self.port}"

    async def serve(self, app: ASGIApp) -> None:
        """Until ``stop``."""
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            http=LimitedConnection,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=3,
            backlog=BACKLOG,
        )
        config.load()
        config.ssl = self._tls
        self._server = _Server(config)
        await self._server.serve(sockets=[self._socket])

    def stop(self) -> None:
        """What is being answered is answered yet."""
        if self._server is not None:
            self._server.should_exit = True

    def close(self) -> None:
        """Nobody is listened to any more."""
        self._socket.close()


def listen(address: str, port: int) -> socket.socket:
    """Raises UsageError where the port is taken or the address is none of this machine."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        return socket.create_server((address, port), family=family, dualstack_ipv6=address == "::")
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or str(error)
        shown = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
        free = f"{address if ':' not in address else f'[{address}]'}:0"
        step = f"aliquot dashboard --listen {free}, or what you typed after: export ALIQUOT_LISTEN={free}"
        raise UsageError(f"the page cannot be served at {shown}: {why}", next_step=step) from error


def tls_context(certificate: str, key: str) -> ssl.SSLContext:
    """Raises UsageError for files that are no certificate and key."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
    except (ssl.SSLError, OSError) as error:
        raise UsageError(f"the certificate {certificate} and the key {key} cannot be used: {error}") from error
    return context


async def first_of(*tasks: asyncio.Task[None]) -> None:
    """Until the first of these ends; its fault is raised."""
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()
