"""List and watch: yields the existing objects, then every change, and loses none in an interruption.

The rules are those of Kubernetes' "API concepts" (efficient detection of changes) and of client-go's reflector:

- Resume from the last version seen, bookmarks included.
- After 410 Gone, list again, not older than the last version seen.
- Read from etcd only if the server's cache cannot answer.

An informer keeps the objects; this module does not.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Generic

import msgspec

from aliquot.foundation.backoff import Backoff
from aliquot.kubernetes.client.client import Api, ObjectSelection, Selector
from aliquot.kubernetes.client.codec import T, WatchEvent, decode
from aliquot.kubernetes.client.errors import (
    TOO_LARGE,
    ApiError,
    ApiStatus,
    ApiUnavailableError,
    GoneError,
    NotFoundError,
    ThrottledError,
    UnauthorizedError,
    from_status,
)
from aliquot.kubernetes.client.object_base import KubeObject
from aliquot.kubernetes.client.session import ApiTarget
from aliquot.kubernetes.client.transport import HttpCall, ResponseStream

LONGEST_LINE = 32 * 1024 * 1024
"""Limit of a line in bytes. An object in etcd has at most about 1.5 MiB."""


class FullList(msgspec.Struct, Generic[T], frozen=True):
    """All objects at a version. Comes first, and again if changes may have been missed."""

    items: tuple[T, ...]
    version: str = ""


class ObjectChanged(msgspec.Struct, Generic[T], frozen=True):
    """An object that is new or changed, or that is reported again."""

    item: T


class ObjectDeleted(msgspec.Struct, Generic[T], frozen=True):
    """A deleted object in its last state."""

    item: T


Change = FullList[T] | ObjectChanged[T] | ObjectDeleted[T]
ErrorListener = Callable[[ApiError | None], None]
"""Called with the error of each failed try, and with None once the API server answers again."""


class WatchTiming(msgspec.Struct, frozen=True):
    """Timing of a watch, in seconds. The back-off doubles after each failure, with jitter."""

    shortest_s: float = 300
    """Shortest time after which the server ends a stream."""
    longest_s: float = 600
    """Longest time after which the server ends a stream."""
    grace_s: float = 30
    """Time after that until the client closes the stream."""
    first_backoff_s: float = 0.5
    longest_backoff_s: float = 30
    refused_s: float = 60
    """Longest back-off after a refusal that time alone does not fix (403, 404)."""


DEFAULT_TIMING = WatchTiming()


def watch(
    api: Api,
    kind: type[T],
    *,
    namespace: str | None = None,
    name: str | None = None,
    labels: Selector | None = None,
    fields: Selector | None = None,
    timing: WatchTiming = DEFAULT_TIMING,
    report: ErrorListener | None = None,
) -> AsyncGenerator[Change[T], None]:
    """Watch forever without raising; failures go to ``report``. ``namespace`` "*" is every namespace."""
    selection = api.selection(kind, namespace, name=name, labels=labels, fields=fields)
    return _Watch(api, kind, selection, timing, report or (lambda _: None)).run()


class _Watch(Generic[T]):
    """State of a watch.

    ``_version`` is the version to resume from, empty before a list. ``_floor`` is the version that the next list must
    not be older than.
    """

    def __init__(
        self, api: Api, kind: type[T], selection: ObjectSelection, timing: WatchTiming, report: ErrorListener
    ) -> None:
        self._api = api
        self._kind = kind
        self._selection = selection
        self._timing = timing
        self._report = report
        self._version = ""
        self._floor: str | None = "0"
        self._failures = 0
        self._expirations = 0
        self._unavailable = False

    async def run(self) -> AsyncGenerator[Change[T], None]:
        while True:
            try:
                if not self._version:
                    yield await self._list()
                async with aclosing(self._follow()) as changes:
                    async for change in changes:
                        yield change
            except GoneError:
                self._restart_from_list()
                await asyncio.sleep(self._pause() if self._expirations > 1 else self._jitter())
            except ApiError as error:
                if error.reason == TOO_LARGE:
                    self._restart_from_list()
                elif isinstance(error, NotFoundError):
                    self._version = ""  # the CRD was deleted with its objects: list them once it exists again
                self._failures += 1
                self._unavailable = True
                self._report(error)
                await asyncio.sleep(self._delay(error))

    async def _list(self) -> FullList[T]:
        page = await self._api.snapshot(self._kind, self._selection, self._floor)
        self._report_recovery()
        self._version = page.metadata.resource_version or "0"
        self._floor = self._version
        return FullList(page.items, page.metadata.resource_version)

    async def _follow(self) -> AsyncGenerator[Change[T], None]:
        """Yield the changes of one stream from ``_version`` on, until the stream ends, breaks or goes silent."""
        loop = asyncio.get_running_loop()
        seconds = random.uniform(self._timing.shortest_s, self._timing.longest_s)
        opened, received = loop.time(), False
        async with self._api.session.stream(self._call(seconds)) as stream:
            self._report_recovery()
            async for line in _lines(stream, opened + seconds + self._timing.grace_s):
                change = self._handle_event(decode(line, WatchEvent))
                received = True
                self._reset_failures()
                if change is not None:
                    yield change
        if received or loop.time() - opened >= 1:
            self._reset_failures()
        else:
            self._failures += 1  # back off if the server closes the connection at once
        await asyncio.sleep(self._pause() if self._failures else self._jitter() / 4)

    def _handle_event(self, event: WatchEvent) -> Change[T] | None:
        if event.type == "ERROR":
            raise from_status(decode(event.object, ApiStatus), 500, self._target.request("watch"))
        if event.type == "BOOKMARK":
            self._advance(decode(event.object, KubeObject).metadata.resource_version)
            return None
        item = decode(event.object, self._kind)
        self._advance(item.metadata.resource_version)
        return ObjectDeleted(item) if event.type == "DELETED" else ObjectChanged(item)

    def _advance(self, version: str) -> None:
        if version:
            self._version = self._floor = version

    def _restart_from_list(self) -> None:
        """List again: first from the server's cache, then from etcd if that failed too."""
        self._expirations += 1
        if not self._version or self._expirations > 1:
            self._floor = None
        self._version = ""
        self._failures += 1

    def _reset_failures(self) -> None:
        self._failures = self._expirations = 0

    def _report_recovery(self) -> None:
        if self._unavailable:
            self._unavailable = False
            self._report(None)

    @property
    def _target(self) -> ApiTarget:
        return ApiTarget(self._kind.TYPE, self._selection.name, self._selection.namespace)

    def _call(self, seconds: float) -> HttpCall:
        params = self._selection.params() | {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(max(1, round(seconds))),
        }
        path = self._kind.TYPE.path(self._selection.namespace)
        return HttpCall(self._target.request("watch"), "GET", path, params)

    def _delay(self, error: ApiError) -> float:
        if isinstance(error, ApiUnavailableError | UnauthorizedError | ThrottledError):
            return max(self._pause(), error.retry_after_s or 0)
        refused = Backoff(2 * self._timing.first_backoff_s, self._timing.refused_s, jitter=(0.75, 1.25))
        return refused.pause(self._failures)

    def _pause(self) -> float:
        backoff = Backoff(self._timing.first_backoff_s, self._timing.longest_backoff_s, jitter=(0.5, 1.0))
        return backoff.pause(self._failures)

    def _jitter(self) -> float:
        return random.uniform(0, self._timing.first_backoff_s)


async def _lines(stream: ResponseStream, deadline: float) -> AsyncGenerator[bytes, None]:
    """Yield whole lines until the stream ends, breaks or passes its deadline.

    An incomplete last line is dropped, as it comes again. Lines split only at newlines: a text reader would also split
    at the U+0085 that an annotation may contain.
    """
    rest = b""
    async with aclosing(stream.chunks()) as chunks:
        while True:
            try:
                async with asyncio.timeout_at(deadline):
                    chunk = await anext(chunks)
            except (StopAsyncIteration, TimeoutError, ApiUnavailableError):
                return
            *whole, rest = (rest + chunk).split(b"\n") if b"\n" in chunk else (rest + chunk,)
            if len(rest) > LONGEST_LINE:
                raise ApiError(f"the API server sent a line of more than {LONGEST_LINE >> 20} MiB")
            for line in whole:
                if line.strip():
                    yield line
