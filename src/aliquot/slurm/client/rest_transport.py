"""HTTP to slurmrestd over TCP, TLS or a unix socket. Every request has a time limit; no connection stays open."""

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
"""Limit of a response. A document of 100,000 jobs has about 800 MB."""
_CHUNK_BYTES = 1 << 20
Query = tuple[tuple[str, str], ...]


class SlurmrestdResponse(NamedTuple):
    """A response of slurmrestd."""

    status: int
    body: bytes
    seconds: float
    """The duration of the request."""


class RestTransport:
    """The connection settings of one slurmrestd.

    ``url`` is ``http://host:6820``, ``https://host`` or ``unix:/run/slurmrestd.sock``; raises UsageError for another
    one. The token is a JWT of Slurm (``scontrol token``); a unix socket does not need it.
    """

    def __init__(self, url: str, token: str = "", bound_s: float = BOUND_S) -> None:
        parts = urlsplit(url)
        if parts.username is not None or parts.password is not None:
            # They would appear in every error and log; slurmrestd only accepts a token.
            raise UsageError(
                f"the URL of slurmrestd must not contain a user or a password: {parts.scheme}://{parts.hostname}",
                next_step="export $(scontrol token username=$USER lifespan=86400)",
            )
        if not (parts.path if parts.scheme == "unix" else parts.hostname and parts.scheme in ("http", "https")):
            raise UsageError(
                f"invalid URL of slurmrestd {url!r}",
                next_step="use http://HOST:6820, https://HOST or unix:/run/slurmrestd.sock",
            )
        self.url = url
        self._parts = parts
        self._token = token.removeprefix("SLURM_JWT=").strip()
        if not (self._token.isascii() and self._token.isprintable()):
            # The error of the HTTP library would show the token.
            raise UsageError(
                "SLURM_JWT is not a token: it contains characters that are not printable ASCII",
                next_step="export $(scontrol token username=$USER lifespan=86400)",
            )
        self._bound_s = bound_s

    def request(
        self, purpose: str, method: str, path: str, query: Query = (), body: object = None
    ) -> SlurmrestdResponse:
        """Send a request.

        Raises SlurmUnavailableError if slurmrestd does not answer. Raises DeniedError for an invalid token.
        """
        check_token(self._token, purpose)
        target = quote(path) + (f"?{urlencode(query)}" if query else "")
        begun = time.monotonic()
        connection = self._connection()
        try:
            connection.connect()
            with abort_after(begun + self._bound_s - time.monotonic(), connection.sock):
                connection.request(method, target, self._data(body), self._headers(body))
                with connection.getresponse() as response:
                    data = read_response(response, MOST_BYTES)
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
            headers["X-SLURM-USER-NAME"] = name  # 22.05 requires it
        return headers | ({"Content-Type": "application/json"} if body is not None else {})

    @staticmethod
    def _data(body: object) -> bytes | None:
        return None if body is None else msgspec.json.encode(body)


def read_response(response: http.client.HTTPResponse, most: int) -> bytes:
    """Return the body of a response. Raises OSError if it is longer than ``most`` bytes, or HTTPException."""
    chunks, size = [], 0
    while chunk := response.read1(_CHUNK_BYTES):
        size += len(chunk)
        if size > most:
            raise OSError(f"the response is longer than {most} bytes")
        chunks.append(chunk)
    if response.length:
        raise http.client.IncompleteRead(b"", response.length)
    return b"".join(chunks)


@contextlib.contextmanager
def abort_after(seconds: float, connected: socket.socket) -> Iterator[None]:
    """Shut the connection down after some seconds: the library only limits each read, so a slow server never ends."""

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
