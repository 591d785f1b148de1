"""Requests to the API server with counting, timeouts and retries."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

import msgspec

from aliquot.kubernetes.client.errors import (
    BUDGET,
    ApiError,
    ApiRequest,
    ApiUnavailableError,
    ConnectionBrokenError,
    from_response,
)
from aliquot.kubernetes.client.object_base import ResourceType
from aliquot.kubernetes.client.transport import HttpAnswer, HttpCall, ResponseStream, Transport

Hook = Callable[[str, str, int, float], None]
"""Called after each request with verb, resource (``nodes``, ``pods/eviction``), HTTP status (0 for no response) and
seconds until the response (for a watch, until its headers)."""

TIMEOUT_S = 10.0
PATIENCE_S = 20.0
_METHODS = {"create": "POST", "patch": "PATCH", "delete": "DELETE"}
_READS = ("get", "list")


class ApiTarget(msgspec.Struct, frozen=True):
    """The object or collection that a request is for."""

    type: ResourceType
    name: str | None = None
    namespace: str | None = None
    """None is the whole cluster."""
    subresource: str | None = None

    def request(self, verb: str) -> ApiRequest:
        namespace = self.namespace if self.type.namespaced else None
        return ApiRequest(verb, str(self.type), self.name or "", namespace or "", self.subresource or "")

    @property
    def path(self) -> str:
        # A created object's name is in its body; a subresource is created below an object's name.
        return self.type.path(self.namespace, self.name, self.subresource)


class ApiSession:
    """Sends requests and counts them in ``requests`` by verb and resource. Raises ApiError and its subclasses."""

    def __init__(
        self,
        transport: Transport,
        *,
        timeout_s: float = TIMEOUT_S,
        patience_s: float = PATIENCE_S,
        on_request: Hook | None = None,
    ) -> None:
        self.transport = transport
        self.timeout_s = timeout_s
        self.patience_s = patience_s
        self.on_request = on_request
        self.requests: dict[tuple[str, str], int] = {}

    async def send(
        self,
        verb: str,
        target: ApiTarget,
        *,
        body: object = None,
        params: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> bytes:
        """Send a request and return the body of a successful response."""
        call = HttpCall(
            target.request(verb),
            _METHODS.get(verb, "GET"),
            target.path,
            params or {},
            msgspec.json.encode(body) if body is not None else None,
            content_type,
        )
        return await self.send_with_retries(call)

    async def send_with_retries(self, call: HttpCall) -> bytes:
        """Send a call and return the body, with retries.

        Retries while the server sends Retry-After, which it does before it has done anything. Repeats a read once over
        a new connection if an idle connection turned out to be dead.
        """
        end = time.monotonic() + self.patience_s
        may_repeat = call.request.verb in _READS
        while True:
            try:
                answer = await self._send_once(call)
            except ConnectionBrokenError:
                if not may_repeat:
                    raise
                may_repeat = False
                continue
            if answer.status < 300:
                return answer.body
            error = from_response(answer.status, answer.body, call.request, retry_after=answer.retry_after)
            wait = _retry_delay(error)
            if wait is None or time.monotonic() + wait > end:
                raise error
            await asyncio.sleep(wait * random.uniform(1.0, 1.2))

    @asynccontextmanager
    async def stream(self, call: HttpCall) -> AsyncIterator[ResponseStream]:
        """Open a streamed response. Raises the error of a response that is not successful."""
        started = time.monotonic()
        status = 0
        try:
            async with self.transport.stream(call, self.timeout_s) as stream:
                status = stream.status
                self.count(call.request, status, started)
                if status >= 300:
                    raise from_response(
                        status, await self._error_body(stream), call.request, retry_after=stream.retry_after
                    )
                yield stream
        except ApiError:
            if not status:
                self.count(call.request, 0, started)
            raise

    async def _error_body(self, stream: ResponseStream) -> bytes:
        """Return the body of an error response; empty if it does not arrive, as the status is enough."""
        try:
            async with asyncio.timeout(self.timeout_s):
                return await stream.body()
        except (TimeoutError, ApiUnavailableError):
            return b""

    async def _send_once(self, call: HttpCall) -> HttpAnswer:
        started = time.monotonic()
        try:
            answer = await self.transport.send(call, self.timeout_s)
        except ApiError:
            self.count(call.request, 0, started)
            raise
        self.count(call.request, answer.status, started)
        return answer

    def count(self, request: ApiRequest, status: int, started: float) -> None:
        """Count a request with its HTTP status (0 for no response); ``started`` is the monotonic time in seconds."""
        resource = f"{request.resource}/{request.subresource}" if request.subresource else request.resource
        key = request.verb, resource
        self.requests[key] = self.requests.get(key, 0) + 1
        if self.on_request is not None:
            self.on_request(request.verb, resource, status, time.monotonic() - started)


def _retry_delay(error: ApiError) -> float | None:
    """Return the seconds to wait before a retry; None to fail now. A budget that blocks an eviction is not retried."""
    if error.reason == BUDGET or not (error.status == 429 or error.status >= 500):
        return None
    return error.retry_after_s
