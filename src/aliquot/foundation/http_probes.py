"""Liveness, readiness and metrics over HTTP: three pages, no framework."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

Page = Callable[[], tuple[int, str, bytes]]
"""Status, content type, body."""
Negotiated = Callable[[Mapping[str, str]], tuple[int, str, bytes, Mapping[str, str]]]
"""The same for a page whose form is the asker's choice: it is given the request's headers, their names in small
letters, and says further ones.
"""

_WORDS = {200: "OK", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}
_PATIENCE_S = 5.0
_MOST = 64
"""Connections at a time: strangers must not take the open files that a change needs. The oldest gives way, so that
who asks at once is answered.
"""


class Probes:
    """Serves pages by path. A question that is not asked in time is dropped."""

    def __init__(self, pages: Mapping[str, Page], negotiated: Mapping[str, Negotiated] | None = None) -> None:
        self._pages = pages
        self._negotiated = negotiated or {}
        self._server: asyncio.Server | None = None
        self._open: dict[asyncio.StreamWriter, None] = {}

    async def start(self, host: str, port: int) -> int:
        """The port that is listened on (``port`` 0 takes a free one, of loopback). Raises OSError."""
        self._server = await asyncio.start_server(self._serve, host if port else "127.0.0.1", port)
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open[writer] = None
        if len(self._open) > _MOST:
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.transport.abort()
        try:
            async with asyncio.timeout(_PATIENCE_S):
                head = await reader.readuntil(b"\r\n\r\n")
                first, *others = head.decode("latin-1").split("\r\n")
                status, kind, body, more = self._answer(first, _headers(others))
                lines = f"HTTP/1.1 {status} {_WORDS[status]}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}"
                lines += "".join(f"\r\n{name}: {value}" for name, value in more.items())
                writer.write(f"{lines}\r\nConnection: close\r\n\r\n".encode() + body)
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return
        finally:
            self._open.pop(writer, None)
            writer.close()

    def _answer(self, line: str, headers: Mapping[str, str]) -> tuple[int, str, bytes, Mapping[str, str]]:
        method, _, rest = line.partition(" ")
        path = rest.partition(" ")[0].partition("?")[0]
        if method not in ("GET", "HEAD"):
            return 405, "text/plain", b"GET only\n", {}
        if path in self._negotiated:
            status, kind, body, more = self._negotiated[path](headers)
        elif path in self._pages:
            (status, kind, body), more = self._pages[path](), {}
        else:
            return 404, "text/plain", (" ".join({**self._pages, **self._negotiated}) + "\n").encode(), {}
        return status, kind, b"" if method == "HEAD" else body, more


def _headers(lines: list[str]) -> dict[str, str]:
    """What is said twice counts as a list."""
    found: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if colon:
            key = name.strip().lower()
            found[key] = f"{found[key]}, {value.strip()}" if key in found else value.strip()
    return found
