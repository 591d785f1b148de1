"""The HTTP server: socket, TLS and shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Iterator
from shlex import quote

import uvicorn
from starlette.types import ASGIApp

from aliquot.dashboard.connection_limits import LimitedConnection
from aliquot.errors import UsageError

BACKLOG = 64
"""The number of connections in the accept queue."""


class _Server(uvicorn.Server):
    """A server without signal handlers: ``main`` handles signals."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class PageServer:
    """A server that listens at once and answers while ``serve`` runs. Port 0 selects a free port."""

    def __init__(self, address: str, port: int, tls: ssl.SSLContext | None = None) -> None:
        self._socket = listen(address, port)
        # Accepted sockets inherit this. Without it, headers and body on a keep-alive connection are 40 ms apart.
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
        """Serve until ``stop`` is called."""
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
        """Stop the server. Responses in progress are completed."""
        if self._server is not None:
            self._server.should_exit = True

    def close(self) -> None:
        """Close the listening socket."""
        self._socket.close()


def listen(address: str, port: int) -> socket.socket:
    """Open the listening socket. Raises UsageError if the port is in use or the address is not one of this host."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        return socket.create_server((address, port), family=family, dualstack_ipv6=address == "::")
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or str(error)
        shown = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
        free = f"{address if ':' not in address else f'[{address}]'}:0"
        step = f"aliquot dashboard --listen {free}, or run your command after: export ALIQUOT_LISTEN={free}"
        raise UsageError(f"cannot serve the dashboard at {shown}: {why}", next_step=step) from error


def tls_context(certificate: str, key: str) -> ssl.SSLContext:
    """Load the certificate and its key. Raises UsageError if they cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    files = f"ls -l {quote(certificate)} {quote(key)}"
    try:
        context.load_cert_chain(certificate, key)
    except (ssl.SSLError, OSError) as error:
        why = str(error) if isinstance(error, ssl.SSLError) else error.strerror
        raise UsageError(
            f"cannot use the certificate {certificate} with the key {key}: {why}", next_step=files
        ) from error
    return context


async def first_of(*tasks: asyncio.Task[None]) -> None:
    """Wait until the first of these tasks ends. Raises its error."""
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()
