"""Watches: the events after a version, as lines of JSON."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from support.standin.answers import Cause, RefusalError, expired, invalid
from support.standin.call import Call
from support.standin.pages import no_number, too_large
from support.standin.selectors import Matches
from support.standin.store import Event, Store

JSON = dict[str, Any]
BOOKMARK_EVERY_S = 5.0
"""A real server sends one about once a minute; tests should not wait for that."""
LONGEST_S = 3600.0
_STEP_S = 0.25


class Watch:
    """An open watch. ``alive`` reports whether the connection may continue."""

    def __init__(self, store: Store, call: Call, selected: Matches, alive: Callable[[], bool]) -> None:
        self._store, self._call, self._selected, self._alive = store, call, selected, alive
        query = call.query
        self._bookmarks = query.get("allowWatchBookmarks") in ("true", "1")
        self._until = time.monotonic() + min(float(query.get("timeoutSeconds") or LONGEST_S), LONGEST_S)
        asked = query.get("resourceVersion", "")
        self._initial = query.get("sendInitialEvents") in ("true", "1")
        if self._initial and query.get("resourceVersionMatch") != "NotOlderThan":
            why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            raise invalid("ListOptions", "meta.k8s.io", "", [Cause.forbidden("resourceVersionMatch", why)])
        if asked and not asked.isdigit():
            raise RefusalError(500, "", f"resourceVersion: {no_number(asked)}")
        self._from = int(asked or 0)
        if self._from > store.revision + 1_000_000:
            raise too_large(self._from, store.revision)

    def events(self) -> Iterator[JSON]:
        """Yield the lines to send, forever or until the time is over. Pauses are not visible."""
        with self._store.changed:
            at = self._from
            rows = self._rows() if at == 0 or self._initial else []
            if at == 0 or self._initial:
                at = self._store.revision
        if self._from and not self._initial and self._from < self._store.oldest:
            yield {"type": "ERROR", "object": _too_old(self._from, self._store.oldest).body()}
            return
        for row in rows:
            yield {"type": "ADDED", "object": row}
        if self._initial:
            yield self._bookmark(at, initial=True)
        yield from self._follow(at)

    def _rows(self) -> list[JSON]:
        rows = self._store.items(self._call.kind.bucket, self._call.home or None)
        return [row for row in rows if self._selected(row)]

    def _follow(self, at: int) -> Iterator[JSON]:
        answer = time.monotonic()
        heard = self._store.heard(self._call.kind.bucket)
        while self._alive() and time.monotonic() < self._until:
            with heard:
                if self._store.revision <= at:
                    heard.wait(_STEP_S)
                gone = at < self._store.complete_from
                found = list(self._store.since(self._call.kind.bucket, at))
                now = self._store.revision
            if gone:
                yield {"type": "ERROR", "object": _too_old(at, self._store.oldest).body()}
                return
            for event in found:
                if line := self._line(event):
                    yield line
                    answer = time.monotonic()
            at = now
            if self._bookmarks and time.monotonic() - answer > BOOKMARK_EVERY_S:
                answer = time.monotonic()
                yield self._bookmark(at)

    def _line(self, event: Event) -> JSON | None:
        """Return the event for this watch: an object that starts to match is added, one that stops is deleted."""
        namespace = self._call.home
        if namespace and event.object["metadata"].get("namespace") != namespace:
            return None
        was = event.before is not None and self._selected(event.before)
        now = event.type != "DELETED" and self._selected(event.object)
        if was and not now:
            shown = event.object if event.type == "DELETED" else _at(event.before or {}, event.revision)
            return {"type": "DELETED", "object": shown}
        if now:
            return {"type": "MODIFIED" if was else "ADDED", "object": event.object}
        return None

    def _bookmark(self, revision: int, *, initial: bool = False) -> JSON:
        meta: JSON = {"resourceVersion": str(revision)}
        if initial:
            meta["annotations"] = {"k8s.io/initial-events-end": "true"}
        kind = self._call.kind
        head = {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": meta}
        return {"type": "BOOKMARK", "object": head}


def _at(value: JSON, revision: int) -> JSON:
    return {**value, "metadata": {**value["metadata"], "resourceVersion": str(revision)}}


def _too_old(asked: int, oldest: int) -> RefusalError:
    return expired(f"too old resource version: {asked} ({oldest})")
