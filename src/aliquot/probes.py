"""Liveness, readiness and metrics over HTTP: three pages, no framework."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

Page = Callable[[], tuple[int, str, bytes]]
"""Status, content type, body."""

_WORDS = {200: "OK", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}
_PATIENCE_S = 5.0


class Probes:
    """Serves pages by path. A question that is not asked in time is dropped."""

    def __init__(self, pages: dict[str, Page]) -> None:
        self._pages = pages
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """The port that is listened on (``port`` 0 takes a free one, of loopback). Raises OSError."""
        self._server = await asyncio.start_server(self._serve, host if port else "127.0.0.1", port)
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_PATIENCE_S):
                head = await reader.readuntil(b"\r\n\r\n")
                status, kind, body = self._answer(head.split(b"\r\n", 1)[0].decode("latin-1"))
                lines = f"HTTP/1.1 {status} {_WORDS[status]}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}"
                writer.write(f"{lines}\r\nConnection: close\r\n\r\n".encode() + body)
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return
        finally:
            writer.close()

    def _answer(self, line: str) -> tuple[int, str, bytes]:
        method, _, rest = line.partition(" ")
        page = self._pages.get(rest.partition(" ")[0].partition("?")[0])
        if method not in ("GET", "HEAD"):
            return 405, "text/plain", b"GET only\n"
        if page is None:
            return 404, "text/plain", (" ".join(self._pages) + "\n").encode()
        status, kind, body = page()
        return status, kind, b"" if method == "HEAD" else body
