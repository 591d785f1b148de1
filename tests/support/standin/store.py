"""Objects, their versions, and their events. One lock guards them all."""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

JSON = dict[str, Any]
Key = tuple[str, str]
"""Namespace ("" for cluster-scoped objects) and name."""
KEPT = 20_000
"""Events that a watch may start from; older ones are forgotten."""


class Event(msgspec.Struct, frozen=True):
    """A write. ``before`` is None for a created object; ``object`` is the last state of a deleted one."""

    revision: int
    bucket: str
    type: Literal["ADDED", "MODIFIED", "DELETED"]
    object: JSON
    before: JSON | None


def clone(value: JSON) -> JSON:
    """Return a deep copy, by the fast codec. Stored objects are never changed in place."""
    copied: JSON = msgspec.json.decode(msgspec.json.encode(value))
    return copied


class Store:
    """All objects and events of the server."""

    def __init__(self) -> None:
        lock = threading.RLock()
        self.changed = threading.Condition(lock)
        """Notified of each write."""
        self._heard: dict[str, threading.Condition] = defaultdict(lambda: threading.Condition(lock))
        self.revision = 1
        self.oldest = 0
        """Watches may start from this revision or a later one."""
        self.complete_from = 0
        """Watches that have seen this revision have missed nothing and may continue."""
        self._buckets: dict[str, dict[Key, JSON]] = {}
        self._history: deque[Event] = deque()

    def get(self, bucket: str, namespace: str, name: str) -> JSON | None:
        with self.changed:
            return self._buckets.get(bucket, {}).get((namespace, name))

    def items(self, bucket: str, namespace: str | None = None) -> list[JSON]:
        """Return objects in the order of their keys. ``namespace`` None means all."""
        with self.changed:
            found = self._buckets.get(bucket, {})
            return [found[key] for key in sorted(found) if namespace is None or key[0] == namespace]

    def put(self, bucket: str, value: JSON) -> JSON:
        """Create or replace an object. The stored object is the given one with its new version."""
        with self.changed:
            key = _key(value)
            before = self._buckets.setdefault(bucket, {}).get(key)
            self.revision += 1
            stored = {**value, "metadata": {**value["metadata"], "resourceVersion": str(self.revision)}}
            self._buckets[bucket][key] = stored
            self._record(Event(self.revision, bucket, "MODIFIED" if before else "ADDED", stored, before))
            return stored

    def remove(self, bucket: str, value: JSON) -> JSON:
        """Remove an object and return its last state, at the version of the removal."""
        with self.changed:
            before = self._buckets[bucket].pop(_key(value))
            self.revision += 1
            last = {**value, "metadata": {**value["metadata"], "resourceVersion": str(self.revision)}}
            self._record(Event(self.revision, bucket, "DELETED", last, before))
            return last

    def _record(self, event: Event) -> None:
        self._history.append(event)
        self._heard[event.bucket].notify_all()
        while len(self._history) > KEPT:
            self.oldest = self.complete_from = self._history.popleft().revision
        self.changed.notify_all()

    def heard(self, bucket: str) -> threading.Condition:
        """Return the condition notified of each write to one bucket, so that watches of others do not wake up. It has
        the same lock.
        """
        with self.changed:
            return self._heard[bucket]

    def beyond(self, revision: int, seconds: float) -> int:
        """Wait for a write after a revision, up to the given seconds. Return the revision then."""
        with self.changed:
            self.changed.wait_for(lambda: self.revision > revision, max(seconds, 0.0))
            return self.revision

    def since(self, bucket: str, revision: int) -> Iterator[Event]:
        """Return the events after a revision, oldest first."""
        with self.changed:
            found: list[Event] = []
            for event in reversed(self._history):
                if event.revision <= revision:
                    break
                if event.bucket == bucket:
                    found.append(event)
        return reversed(found)

    def expire(self) -> None:
        """Forget the history: a new watch from any earlier version gets 410. Open watches continue."""
        with self.changed:
            self.complete_from = self.revision
            self.revision += 1
            self._history.clear()
            self.oldest = self.revision
            for each in (self.changed, *self._heard.values()):
                each.notify_all()


def _key(value: JSON) -> Key:
    return (value["metadata"].get("namespace", ""), value["metadata"]["name"])
