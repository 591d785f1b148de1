"""Instant queries of a Prometheus, with limits on time and size."""

from __future__ import annotations

import http.client
import math
import time
from collections.abc import Iterable
from shlex import quote
from typing import Any
from urllib.parse import urlencode, urlsplit

import msgspec

from aliquot.errors import UsageError
from aliquot.slurm.client.rest_transport import abort_after, read_response
from aliquot.slurm.report.measured import Sample

BOUND_S = 60.0
"""Limit of all queries of a report together, in seconds."""
MOST_BYTES = 64 << 20
"""Limit of a response: 300,000 jobs."""
_LONGEST_TOKEN = 65536
_EXAMPLE = "aliquot slurm report --prometheus http://127.0.0.1:9090"


class NoMeasurementsError(Exception):
    """Prometheus does not answer, or not as Prometheus does. Its text is the reason."""


class _Row(msgspec.Struct, frozen=True):
    metric: dict[str, str]
    value: tuple[float, str]


class _Data(msgspec.Struct, frozen=True):
    result_type: str = msgspec.field(name="resultType")
    result: list[_Row]


class _Response(msgspec.Struct, frozen=True):
    status: str
    data: _Data | None = None
    error: str = ""


def read_token(path: str) -> str:
    """Read the bearer token in a file. Raises UsageError, which never contains the token."""
    next_step = f"aliquot slurm report --prometheus URL --prometheus-token-file {quote(path)}"
    try:
        with open(path, encoding="utf-8") as file:
            token = file.read(_LONGEST_TOKEN).strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UsageError(f"cannot read the token file {path}: {why}", next_step=f"ls -l {quote(path)}") from error
    if not token or not (token.isascii() and token.isprintable() and " " not in token):
        # The error of the HTTP library would show the token.
        raise UsageError(f"{path} does not have a token: one word of printable ASCII", next_step=next_step)
    return token


class Prometheus:
    """The Prometheus at a URL, which may want a bearer token. Raises UsageError for an invalid URL."""

    def __init__(self, url: str, bound_s: float = BOUND_S, token: str = "") -> None:
        self.url = url.rstrip("/")
        try:
            parts = urlsplit(self.url)
            self._port = parts.port
        except ValueError as error:
            raise UsageError(f"invalid URL of Prometheus: {error}", next_step=_EXAMPLE) from error
        if parts.username is not None or parts.password is not None:
            # Other users of this host would see them in the list of processes.
            raise UsageError("the URL of Prometheus must not contain a user or a password", next_step=_EXAMPLE)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise UsageError(f"{url!r} is not the URL of a Prometheus", next_step=_EXAMPLE)
        self._scheme, self._host, self._path = parts.scheme, parts.hostname, parts.path
        self._end = time.monotonic() + bound_s
        self._headers = {"Content-Type": "application/x-www-form-urlencoded", "Connection": "close"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"

    def ask(self, expression: str, at: float) -> Iterable[Sample]:
        """Return labels and values of an instant query at a time. Raises NoMeasurementsError."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise NoMeasurementsError("its queries took too long: use a shorter --since")
        query = urlencode({"query": expression, "time": f"{at:.0f}", "timeout": f"{math.ceil(left)}s"})
        connection = self._connection(left)
        try:
            connection.connect()
            with abort_after(left, connection.sock):
                target = f"{self._path}/api/v1/query"
                connection.request("POST", target, query, self._headers)
                with connection.getresponse() as response:
                    body = read_response(response, MOST_BYTES)
        except (OSError, http.client.HTTPException, ValueError) as failure:
            raise NoMeasurementsError(str(failure) or type(failure).__name__) from failure
        finally:
            connection.close()
        if response.status in (401, 403):
            raise NoMeasurementsError(f"status {response.status}: it wants a token: --prometheus-token-file FILE")
        return _samples(response.status, body)

    def _connection(self, seconds: float) -> http.client.HTTPConnection:
        kind: Any = http.client.HTTPSConnection if self._scheme == "https" else http.client.HTTPConnection
        connection: http.client.HTTPConnection = kind(self._host, self._port, timeout=seconds)
        return connection


def _samples(status: int, body: bytes) -> list[Sample]:
    try:
        found = msgspec.json.decode(body, type=_Response)
        if found.status == "success" and found.data is not None and found.data.result_type == "vector":
            return [(row.metric, float(row.value[1])) for row in found.data.result]
    except (msgspec.DecodeError, ValueError) as error:
        raise NoMeasurementsError(f"status {status}, and it does not answer as Prometheus does") from error
    raise NoMeasurementsError(f"status {status}: {found.error or 'it does not answer as Prometheus does'}")
