"""Bytes to the API server and back: the one module that holds the HTTP library.

What it adds to the library: a bound for everything, TCP keep-alive (a
watch only listens, so a peer that vanished is noticed by nothing else), a second try after a 401 with fresh
credentials, certificates that are renewed on disk or by a plugin, and proxies as Go programs choose them.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx2
import msgspec

from aliquot import __version__
from aliquot.errors import ConfigError
from aliquot.kubernetes.client.cancellation import SETTLE_S, Handshake, abandon, close_response, consume_exception
from aliquot.kubernetes.client.credentials import Credentials, credentials
from aliquot.kubernetes.client.errors import ApiRequest, unavailable_error
from aliquot.kubernetes.client.kubeconfig import ClusterAccess
from aliquot.kubernetes.client.proxy import proxy_for
from aliquot.kubernetes.client.tls import context, stamps

USER_AGENT = f"aliquot/{__version__}"
CHECK_FILES_S = 60.0
KEEP_ALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000),
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
)
_BROKEN = (httpx2.RemoteProtocolError, httpx2.ReadError, httpx2.WriteError)


class HttpCall(msgspec.Struct, frozen=True):
    """One HTTP request. ``request`` is the same in RBAC's words, for errors and counters."""

    request: ApiRequest
    method: str
    path: str
    params: Mapping[str, str] = msgspec.field(default_factory=dict)
    body: bytes | None = None
    content_type: str = "application/json"


class HttpAnswer(msgspec.Struct, frozen=True):
    status: int
    body: bytes
    retry_after: str | None = None


class ConnectionInfo(msgspec.Struct, frozen=True):
    """What a connection that is no HTTP request needs to reach the same server as the same user. ``server_name`` is
    what its certificate must say, empty for the name in its URL; ``proxy`` the URL of one on the way.
    """

    server: str
    headers: tuple[tuple[str, str], ...]
    tls: ssl.SSLContext | None
    server_name: str
    proxy: str | None


class ResponseStream:
    """An answer that goes on. ``body`` and ``chunks`` raise ApiUnavailableError when the connection breaks."""

    def __init__(self, response: httpx2.Response, request: ApiRequest, server: str) -> None:
        self.status = response.status_code
        self.retry_after: str | None = response.headers.get("Retry-After")
        self._response = response
        self._request = request
        self._server = server

    async def body(self) -> bytes:
        """All of it."""
        try:
            return await self._response.aread()
        except (httpx2.HTTPError, OSError) as error:
            raise unavailable_error(self._request, self._server, failure_reason(error), broken=True) from error

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        try:
            async for chunk in self._response.aiter_bytes():
                yield chunk
        except (httpx2.HTTPError, OSError) as error:
            raise unavailable_error(self._request, self._server, failure_reason(error), broken=True) from error


class _Client:
    """An HTTP client made with one set of certificates. Replaced, it is closed as soon as nobody uses it."""

    def __init__(self, access: ClusterAccess, certificate: tuple[str, str] | None) -> None:
        self.certificate = certificate
        self.stamps = stamps(access)
        self._retired = False
        self._users = 0
        transport = httpx2.AsyncHTTPTransport(
            verify=context(access, certificate),
            trust_env=False,
            limits=httpx2.Limits(max_connections=64, max_keepalive_connections=4, keepalive_expiry=30),
            proxy=proxy_for(access.server, access.proxy, os.environ),
            socket_options=KEEP_ALIVE,
        )
        # Every wait is bounded as a whole by asyncio.timeout, not read by read; only connecting has a bound of its own.
        self.http = httpx2.AsyncClient(base_url=access.server, transport=transport, trust_env=False, timeout=None)

    @asynccontextmanager
    async def use(self) -> AsyncIterator[httpx2.AsyncClient]:
        self._users += 1
        try:
            yield self.http
        finally:
            self._users -= 1
            if self._retired and not self._users:
                await self.http.aclose()

    async def retire(self) -> None:
        self._retired = True
        if not self._users:
            await self.http.aclose()


class Transport:
    """Sends calls. Raises ConfigError when it is made, afterwards ApiUnavailableError and UnauthorizedError only."""

    def __init__(self, access: ClusterAccess, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.server = access.server
        self._access = access
        self._credentials: Credentials = credentials(access)
        self._clock = clock
        self._checked_at = clock()
        self._closed = False
        try:
            self._client = _Client(access, None)
        except (OSError, ValueError, ImportError, httpx2.InvalidURL) as error:
            raise ConfigError(
                f"{access.source} does not lead to an API server: {failure_reason(error)}",
                next_step=f"KUBECONFIG={access.source} kubectl cluster-info",
            ) from error

    async def send(self, call: HttpCall, timeout_s: float) -> HttpAnswer:
        """The whole answer, whatever its status, within ``timeout_s`` for the headers and as much for the rest."""
        async with self.stream(call, timeout_s) as stream:
            try:
                async with asyncio.timeout(timeout_s):
                    body = await stream.body()
            except TimeoutError:
                reason = f"the answer was not complete within {timeout_s:g} s"
                raise unavailable_error(call.request, self.server, reason) from None
            return HttpAnswer(stream.status, body, stream.retry_after)

    @asynccontextmanager
    async def stream(self, call: HttpCall, timeout_s: float) -> AsyncIterator[ResponseStream]:
        """The answer as soon as its headers are here, which takes at most ``timeout_s``. A 401 is tried once more
        where fresh credentials can be had.
        """
        async with AsyncExitStack() as stack:
            response = await self._open(stack, call, timeout_s)
            if response.status_code == 401 and await self._credentials.renew():
                response = await self._open(stack, call, timeout_s)
            yield ResponseStream(response, call.request, self.server)

    async def connection_info(self, call: HttpCall) -> ConnectionInfo:
        """How to get there for a connection of the caller's own. Raises UnauthorizedError, ApiUnavailableError."""
        if self._closed:
            raise unavailable_error(call.request, self.server, "we are closing the connection")
        access, headers = self._access, tuple(await self._headers(call))
        try:
            secure = access.server.startswith("https:")
            tls = context(access, self._credentials.certificate) if secure else None
        except (OSError, ValueError) as error:
            raise unavailable_error(call.request, self.server, failure_reason(error)) from error
        proxy = proxy_for(access.server, access.proxy, os.environ)
        return ConnectionInfo(access.server, headers, tls, access.server_name, proxy)

    async def renew(self) -> bool:
        """After a 401: True if a second try can go better."""
        return await self._credentials.renew()

    async def aclose(self) -> None:
        """What is under way may end; nothing new begins."""
        self._closed = True
        await self._client.retire()

    async def _open(self, stack: AsyncExitStack, call: HttpCall, timeout_s: float) -> httpx2.Response:
        if self._closed:
            raise unavailable_error(call.request, self.server, "we are closing the connection")
        headers = await self._headers(call)
        client = await self._current_client()
        http = await stack.enter_async_context(client.use())
        handshake = Handshake()
        extensions: dict[str, Any] = {"trace": handshake.trace}
        if self._access.server_name:
            extensions["sni_hostname"] = self._access.server_name
        # Half for TCP, half for TLS: a handshake that is cancelled from outside would leave its socket open.
        connecting = httpx2.Timeout(None, connect=timeout_s * 0.49)
        request = http.build_request(
            call.method,
            call.path,
            params=call.params,
            content=call.body,
            headers=headers,
            extensions=extensions,
            timeout=connecting,
        )
        response_future = asyncio.ensure_future(http.send(request, stream=True))
        response_future.add_done_callback(consume_exception)
        try:
            async with asyncio.timeout(timeout_s):
                response = await asyncio.shield(response_future)
        except asyncio.CancelledError:
            await abandon(response_future, SETTLE_S if handshake.in_progress else 0.0)
            raise
        except TimeoutError:
            await abandon(response_future, 0.0)
            raise unavailable_error(call.request, self.server, f"no answer within {timeout_s:g} s") from None
        except (httpx2.HTTPError, OSError) as error:
            self._checked_at = float("-inf")  # perhaps the certificates on disk are new
            raise unavailable_error(
                call.request, self.server, failure_reason(error), broken=isinstance(error, _BROKEN)
            ) from error
        stack.push_async_callback(close_response, response)
        return response

    async def _headers(self, call: HttpCall) -> list[tuple[str, str]]:
        headers = [("User-Agent", USER_AGENT), ("Accept", "application/json"), *self._access.impersonation_headers]
        # An answer that trickles in must not wait in a decompressor.
        headers.append(("Accept-Encoding", "identity" if "watch" in call.params else "gzip"))
        if call.body is not None:
            headers.append(("Content-Type", call.content_type))
        authorization = await self._credentials.header()
        return [*headers, ("Authorization", authorization)] if authorization else headers

    async def _current_client(self) -> _Client:
        """The client for the certificates of this moment. One that cannot be made leaves the former in place."""
        client = self._client
        stale = client.certificate != self._credentials.certificate
        if not stale and self._clock() - self._checked_at >= CHECK_FILES_S:
            self._checked_at = self._clock()
            stale = client.stamps != stamps(self._access)
        if not stale:
            return client
        try:
            self._client = _Client(self._access, self._credentials.certificate)
        except (OSError, ValueError):
            return client
        await client.retire()
        return self._client


def failure_reason(error: BaseException) -> str:
    """The operating system's words where there are some: the library's own are "All connection attempts failed"."""
    if isinstance(error, httpx2.ConnectTimeout):
        return "no connection within the time allowed"
    deepest: BaseException | None = error
    while deepest is not None:
        if isinstance(deepest, ssl.SSLCertVerificationError):
            return f"its certificate is not trusted: {deepest.verify_message}"
        if isinstance(deepest, ssl.SSLError):
            return f"TLS failed: {deepest.reason or deepest}"
        if isinstance(deepest, socket.gaierror) and deepest.strerror:
            return f"its name is not known here ({deepest.strerror})"
        if isinstance(deepest, OSError) and deepest.errno:
            return os.strerror(deepest.errno) + (f": {deepest.filename}" if deepest.filename else "")
        several = deepest.exceptions[0] if isinstance(deepest, BaseExceptionGroup) else None
        deepest = several or deepest.__cause__ or deepest.__context__
    return str(error) or type(error).__name__
