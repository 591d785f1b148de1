"""WebSocket to the API server, for commands in containers. Only this module uses the WebSocket library.

TLS, credentials, impersonation and proxies are the same as for other requests. Redirects are not followed, as they
would leak the token.
"""

from __future__ import annotations

import re
import socket
import ssl
import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidHandshake, InvalidMessage, InvalidProxy, InvalidStatus, InvalidURI, ProxyError
from websockets.typing import Subprotocol

from aliquot.kubernetes.client.errors import unavailable_error
from aliquot.kubernetes.client.session import ApiSession
from aliquot.kubernetes.client.transport import KEEP_ALIVE, ConnectionInfo, HttpCall, failure_reason

CLOSE_S = 1.0
"""Seconds to wait for the peer's close frame."""
PING_S = 20.0
"""Seconds between pings: proxies close idle connections, and a driver program may be silent for minutes."""
_FRAME_MOST = 4 * 2**20
_BROKEN = (TimeoutError, ConnectionResetError, BrokenPipeError, EOFError, InvalidMessage)


class WebSocketRejectedError(Exception):
    """The server did not open a WebSocket. Carries the HTTP status, the body and the header ``Retry-After``."""

    def __init__(self, status: int, body: bytes, retry_after: str | None) -> None:
        super().__init__(status)
        self.status, self.body, self.retry_after = status, body, retry_after


class _Connect(connect):
    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


async def open_websocket(
    session: ApiSession, call: HttpCall, query: Sequence[tuple[str, str]], protocols: Sequence[str], timeout_s: float
) -> ClientConnection:
    """Open a connection with one of ``protocols``, best first; the caller closes it.

    Raises WebSocketRejectedError for any other response, UnauthorizedError, and ApiUnavailableError if there is no
    response (ConnectionBrokenError if the server may have done the request).
    """
    end = time.monotonic() + timeout_s
    renewed = False
    while True:
        info = await session.transport.connection_info(call)
        started = time.monotonic()
        try:
            connection = await _connect(info, f"{call.path}?{urlencode(query)}", protocols, max(end - started, 0.1))
        except InvalidStatus as refusal:
            status = refusal.response.status_code
            session.count(call.request, status, started)
            if status == 401 and not renewed and await session.transport.renew():
                renewed = True
                continue
            answer = refusal.response
            raise WebSocketRejectedError(status, bytes(answer.body or b""), answer.headers.get("Retry-After")) from None
        except (OSError, EOFError, InvalidHandshake, InvalidMessage, InvalidProxy, InvalidURI, ImportError) as error:
            session.count(call.request, 0, started)
            raise unavailable_error(
                call.request, info.server, _reason(error, timeout_s), broken=isinstance(error, _BROKEN)
            ) from error
        session.count(call.request, 101, started)
        return connection


async def _connect(info: ConnectionInfo, target: str, protocols: Sequence[str], timeout_s: float) -> ClientConnection:
    tls_options: dict[str, Any] = {"server_hostname": info.server_name} if info.tls and info.server_name else {}
    # The API server forwards Accept to kubelet, which would answer 406, as a WebSocket is not JSON.
    headers = [(name, value) for name, value in info.headers if not name.startswith("Accept")]
    connection = await _Connect(
        re.sub("^http", "ws", info.server) + target,
        subprotocols=[Subprotocol(one) for one in protocols],
        additional_headers=headers,
        user_agent_header=None,
        proxy=info.proxy,
        ssl=info.tls,
        compression=None,
        open_timeout=timeout_s,
        ping_interval=PING_S,
        ping_timeout=None,  # a server that is busy with the command need not answer: the caller has its own timeout
        close_timeout=CLOSE_S,
        max_size=_FRAME_MOST,
        **tls_options,
    )
    raw = connection.transport.get_extra_info("socket")
    for level, option, value in KEEP_ALIVE if raw is not None and raw.family != socket.AF_UNIX else ():
        raw.setsockopt(level, option, value)
    return connection


def _reason(error: BaseException, timeout_s: float) -> str:
    if isinstance(error, ProxyError | InvalidProxy):
        return f"the proxy failed: {error}"
    if isinstance(error, TimeoutError) and not error.errno:
        return f"no answer within {timeout_s:g} s"
    if isinstance(error, OSError | ssl.SSLError):
        return failure_reason(error)
    return f"{error} ({error.__cause__})" if error.__cause__ else str(error) or type(error).__name__
