"""HTTP to slurmrestd, over TCP, TLS or a unix socket. Every request has a bound; nothing is kept open."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import time
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from aliquot.errors import UsageError
from aliquot.slurm.client.errors import SlurmUnavailableError
from aliquot.slurm.client.jwt import check_token, token_denied, user_of
from aliquot.slurm.client.port import BOUND_S

PORT = 6820
MOST_BYTES = 1 << 30
"""A document of 100,000 jobs is about 800 MB; an answer without end is cut off."""
_CHUNK_BYTES = 1 << 20
Query = tuple[tuple[str, str], ...]


class SlurmrestdResponse(NamedTuple):
    """``seconds`` is how long it took."""

    status: int
    body: bytes
    seconds: float


class RestTransport:
    """One slurmrestd. ``url`` is ``http://host:6820``, ``https://host`` or ``unix:/run/slurmrestd.sock``; the token
    is a JWT of Slurm's (``scontrol token``), not needed on a unix socket. Raises UsageError for another place.
    """

    def __init__(self, url: str, token: str = "", bound_s: float = BOUND_S) -> None:
        parts = urlsplit(url)
        if parts.username is not None or parts.password is not None:
            # It would be in every error and in every log; slurmrestd takes a token alone.
            raise UsageError(
                f"a place of slurmrestd's has no user and no password in it: {parts.scheme}://{parts.hostname}",
                next_step="export $(scontrol token username=$USER lifespan=86400)",
            )
        if not (parts.path if parts.scheme == "unix" else parts.hostname and parts.scheme in ("http", "https")):
            raise UsageError(
                f"{url!r} is no place of slurmrestd's",
                next_step="write http://HOST:6820 or unix:/run/slurmrestd.sock",
            )
        self.url = url
        self._parts = parts
        self._token = token.removeprefix("SLURM_JWT=").strip()
        if not (self._token.isascii() and self._token.isprintable()):
            # HTTP's own complaint would show it.
            raise UsageError(
                "SLURM_JWT is no token: it has characters that none has",
                next_step="export $(scontrol token username=$USER lifespan=86400)",
            )
        self._bound_s = bound_s

    def request(
        self, purpose: str, method: str, path: str, query: Query = (), body: object = None
    ) -> SlurmrestdResponse:
        """One request. Raises AwayError (no slurmrestd, or no answer), DeniedError (a token that does not hold)."""
        check_token(self._token, purpose)
        target = quote(path) + (f"?{urlencode(query)}" if query else "")
        begun = time.monotonic()
        connection = self._connection()
        try:
            connection.connect()
            with _abort_after(begun + self._bound_s - time.monotonic(), connection.sock):
                connection.request(method, target, self._data(body), self._headers(body))
                with connection.getresponse() as response:
                    data = self._read(response)
        except (OSError, http.client.HTTPException) as failure:
            raise SlurmUnavailableError(
                f"cannot {purpose}: slurmrestd at {self.url} does not answer",
                details=(str(failure) or type(failure).__name__,),
                next_step="systemctl status slurmrestd",
            ) from failure
        finally:
            connection.close()
        if response.status in (401, 403):
            raise token_denied(purpose, data.decode(errors="replace").strip())
        return SlurmrestdResponse(response.status, data, time.monotonic() - begun)

    def _connection(self) -> http.client.HTTPConnection:
        parts, bound = self._parts, self._bound_s
        if parts.scheme == "unix":
            return _UnixConnection(parts.path, bound)
        host, port = str(parts.hostname), parts.port or PORT
        if parts.scheme == "https":
            return http.client.HTTPSConnection(host, port, timeout=bound)
        return http.client.HTTPConnection(host, port, timeout=bound)

    def _headers(self, body: object) -> dict[str, str]:
        headers = {"Accept": "application/json", "Connection": "close"}
        if self._token:
            headers["X-SLURM-USER-TOKEN"] = self._token
        if name := user_of(self._token):
            headers["X-SLURM-USER-NAME"] = name  # 22.05 asks for it
        return headers | ({"Content-Type": "application/json"} if body is not None else {})

    @staticmethod
    def _data(body: object) -> bytes | None:
        return None if body is None else msgspec.json.encode(body)

    @staticmethod
    def _read(response: http.client.HTTPResponse) -> bytes:
        chunks, size = [], 0
        while chunk := response.read1(_CHUNK_BYTES):
            size += len(chunk)
            if size > MOST_BYTES:
                raise OSError(f"the answer was not over after {size} bytes")
            chunks.append(chunk)
        if response.length:
            raise http.client.IncompleteRead(b"", response.length)
        return b"".join(chunks)


@contextlib.contextmanager
def _abort_after(seconds: float, connected: socket.socket) -> Iterator[None]:
    """The library's bound is for each read: a server that drips would never end."""

    def abort() -> None:
        with contextlib.suppress(OSError):
            connected.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(max(seconds, 0.0), abort)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, bound_s: float) -> None:
        super().__init__("localhost", timeout=bound_s)
        self._path, self._bound = path, bound_s

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self._bound)
        self.sock.connect(self._path)
