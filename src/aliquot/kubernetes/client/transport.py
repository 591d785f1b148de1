"""HTTP transport to the API server. Only this module uses the HTTP library.

It adds to the library:

- timeouts for everything
- TCP keep-alive, as a watch only listens and would not notice that its peer vanished
- a second try with new credentials after a 401
- certificates that are renewed on disk or by a plugin
- proxies by the rules of Go
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
    """An HTTP request."""

    request: ApiRequest
    """The same request in RBAC terms, for errors and counters."""
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
    """Data for another connection to the same server as the same user, such as a WebSocket."""

    server: str
    headers: tuple[tuple[str, str], ...]
    tls: ssl.SSLContext | None
    server_name: str
    """Name that the server's certificate must have; empty for the name in the URL."""
    proxy: str | None
    """URL of the proxy."""


class ResponseStream:
    """A streamed response. ``body`` and ``chunks`` raise ApiUnavailableError if the connection breaks."""

    def __init__(self, response: httpx2.Response, request: ApiRequest, server: str) -> None:
        self.status = response.status_code
        self.retry_after: str | None = response.headers.get("Retry-After")
        self._response = response
        self._request = request
        self._server = server

    async def body(self) -> bytes:
        """Read the rest of the response."""
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
    """An HTTP client with one set of certificates. Once it is replaced, it is closed when its last request ends."""

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
        # asyncio.timeout bounds each wait as a whole, not each read; only connecting has a timeout of its own.
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
    """Sends calls. Its constructor raises ConfigError; its methods raise ApiUnavailableError and UnauthorizedError."""

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
                f"cannot create an API client from {access.source}: {failure_reason(error)}",
                next_step=f"KUBECONFIG={access.source} kubectl cluster-info",
            ) from error

    async def send(self, call: HttpCall, timeout_s: float) -> HttpAnswer:
        """Send a call and return the whole response of any status.

        ``timeout_s`` seconds bound the wait for the headers, and once more the wait for the body.
        """
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
        """Send a call and yield the response once its headers are there, within ``timeout_s`` seconds.

        A 401 is tried once more if the credentials can be renewed.
        """
        async with AsyncExitStack() as stack:
            response = await self._open(stack, call, timeout_s)
            if response.status_code == 401 and await self._credentials.renew():
                response = await self._open(stack, call, timeout_s)
            yield ResponseStream(response, call.request, self.server)

    async def connection_info(self, call: HttpCall) -> ConnectionInfo:
        """Return the data for a connection of the caller's own. Raises UnauthorizedError and ApiUnavailableError."""
        if self._closed:
            raise unavailable_error(call.request, self.server, "the client is closed")
        access, headers = self._access, tuple(await self._headers(call))
        try:
            secure = access.server.startswith("https:")
            tls = context(access, self._credentials.certificate) if secure else None
        except (OSError, ValueError) as error:
            raise unavailable_error(call.request, self.server, failure_reason(error)) from error
        proxy = proxy_for(access.server, access.proxy, os.environ)
        return ConnectionInfo(access.server, headers, tls, access.server_name, proxy)

    async def renew(self) -> bool:
        """Renew the credentials after a 401. Returns whether a second try may succeed."""
        return await self._credentials.renew()

    async def aclose(self) -> None:
        """Refuse new requests, and close the client once the current ones end."""
        self._closed = True
        await self._client.retire()

    async def _open(self, stack: AsyncExitStack, call: HttpCall, timeout_s: float) -> httpx2.Response:
        if self._closed:
            raise unavailable_error(call.request, self.server, "the client is closed")
        headers = await self._headers(call)
        client = await self._current_client()
        http = await stack.enter_async_context(client.use())
        handshake = Handshake()
        extensions: dict[str, Any] = {"trace": handshake.trace}
        if self._access.server_name:
            extensions["sni_hostname"] = self._access.server_name
        # Half for TCP, half for TLS: if cancelled from outside, a handshake would leave its socket open.
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
            self._checked_at = float("-inf")  # the certificates on disk may be new
            raise unavailable_error(
                call.request, self.server, failure_reason(error), broken=isinstance(error, _BROKEN)
            ) from error
        stack.push_async_callback(close_response, response)
        return response

    async def _headers(self, call: HttpCall) -> list[tuple[str, str]]:
        headers = [("User-Agent", USER_AGENT), ("Accept", "application/json"), *self._access.impersonation_headers]
        # A decompressor must not hold back the events of a watch.
        headers.append(("Accept-Encoding", "identity" if "watch" in call.params else "gzip"))
        if call.body is not None:
            headers.append(("Content-Type", call.content_type))
        authorization = await self._credentials.header()
        return [*headers, ("Authorization", authorization)] if authorization else headers

    async def _current_client(self) -> _Client:
        """Return a client with the current certificates; keep the previous client if a new one cannot be created."""
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
    """Return the operating system's message if there is one: the library's is only "All connection attempts failed"."""
    if isinstance(error, httpx2.ConnectTimeout):
        return "the connection timed out"
    deepest: BaseException | None = error
    while deepest is not None:
        if isinstance(deepest, ssl.SSLCertVerificationError):
            return f"its certificate is not trusted: {deepest.verify_message}"
        if isinstance(deepest, ssl.SSLError):
            return f"TLS failed: {deepest.reason or deepest}"
        if isinstance(deepest, socket.gaierror) and deepest.strerror:
            return f"its name cannot be resolved ({deepest.strerror})"
        if isinstance(deepest, OSError) and deepest.errno:
            return os.strerror(deepest.errno) + (f": {deepest.filename}" if deepest.filename else "")
        several = deepest.exceptions[0] if isinstance(deepest, BaseExceptionGroup) else None
        deepest = several or deepest.__cause__ or deepest.__context__
    return str(error) or type(error).__name__
