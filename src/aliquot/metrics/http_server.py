"""A page over HTTP for processes without an event loop: a few threads of the standard library, loopback unless told."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from aliquot.errors import BlockedError
from aliquot.metrics.listen_address import LOOPBACK
from aliquot.metrics.page import MetricsPage

_REQUEST_TIMEOUT_S = 10.0
_MAX_CONNECTIONS = 32
"""Connections at a time. The oldest gives way: who asks at once is answered, whoever else holds connections open."""


class MetricsServer:
    """Serves ``/metrics`` and ``/healthz``. ``port`` is the one that is listened on."""

    def __init__(self, page: MetricsPage, address: str, port: int) -> None:
        """``port`` 0 takes a free one. Raises BlockedError where it cannot be listened on."""
        kind = type("Answer", (_Answer,), {"page": page})
        made = type("Listener", (_Listener,), {"address_family": socket.AF_INET6} if ":" in address else {})
        try:
            self._server: _Listener = made((address, port), kind)
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or error
            step = f"aliquot metrics --listen {LOOPBACK}:0"
            raise BlockedError(f"cannot listen on {address} port {port}: {why}", next_step=step) from error
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)

    @property
    def display_address(self) -> str:
        """``127.0.0.1:9837``, as in an address of the web."""
        address = str(self._server.server_address[0])
        return f"[{address}]:{self.port}" if ":" in address else f"{address}:{self.port}"

    def start(self) -> None:
        """In a thread of its own, until ``close``."""
        self._thread.start()

    def close(self) -> None:
        """Also one that was never started: it would wait for ever for its thread to notice."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()


class _Listener(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, *given: Any) -> None:
        self._open: dict[Any, None] = {}
        super().__init__(*given)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open[request] = None
        if len(self._open) > _MAX_CONNECTIONS:
            oldest = next(iter(self._open))
            self._open.pop(oldest, None)
            with suppress(OSError):
                oldest.shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Who goes away in the middle is no news."""


class _Answer(BaseHTTPRequestHandler):
    page: MetricsPage
    timeout = _REQUEST_TIMEOUT_S
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    """An answer's head and body would else be 40 ms apart on a kept connection."""

    def do_GET(self) -> None:
        # A body is not read: what follows it on this connection would be taken for the next question.
        self.close_connection |= "content-length" in self.headers or "transfer-encoding" in self.headers
        path = self.path.partition("?")[0]
        if path == "/metrics":
            headers = {name.lower(): value for name, value in self.headers.items()}
            status, kind, body, more = self.page.answer(headers)
        elif path == "/healthz":
            status, kind, body, more = 200, "text/plain", b"ok\n", {}
        else:
            status, kind, body, more = 404, "text/plain", b"/metrics /healthz\n", {}
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **more}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET

    def version_string(self) -> str:
        return "aliquot"

    def log_message(self, format: str, *args: object) -> None:
        """A scrape is no news."""
