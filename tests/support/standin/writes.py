"""Read an object, and store its changed form unless another writer was quicker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from support.standin.answers import already_exists, not_found
from support.standin.call import Call
from support.standin.store import Store

JSON = dict[str, Any]
Answer = tuple[int, JSON]


class OvertakenError(Exception):
    """The object changed between reading and writing it."""


class Writes:
    """Compare and store under the store's lock; all earlier work happens outside it."""

    def __init__(self, store: Store, written: Callable[[Call, JSON], None]) -> None:
        self.store, self._written = store, written

    def find(self, call: Call) -> JSON:
        found = self.store.get(call.kind.bucket, call.home, call.name)
        if found is None:
            raise not_found(call.kind.plural, call.group, call.name)
        return found

    def retried(self, attempt: Callable[[], Answer]) -> Answer:
        """Repeat an attempt while others are quicker. Admission may take time, so it holds no lock."""
        while True:
            try:
                return attempt()
            except OvertakenError:
                continue

    def put(self, call: Call, value: JSON, old: JSON | None) -> JSON:
        """Store an object if the stored one is still the one from which it was made.

        Raises:
            RefusalError: 409, an object to be created exists
            OvertakenError: another writer was quicker
        """
        bucket, meta = call.kind.bucket, value["metadata"]
        with self.store.changed:
            current = self.store.get(bucket, meta.get("namespace", ""), meta["name"])
            if current is not old:
                if old is None:
                    raise already_exists(call.kind.plural, call.group, meta["name"])
                raise OvertakenError
            if call.dry:
                return value
            stored = self.store.put(bucket, value)
            self._written(call, stored)
        return stored

    def remove(self, call: Call, value: JSON, old: JSON) -> JSON:
        bucket, meta = call.kind.bucket, value["metadata"]
        with self.store.changed:
            if self.store.get(bucket, meta.get("namespace", ""), meta["name"]) is not old:
                raise OvertakenError
            last = self.store.remove(bucket, value)
            self._written(call, last)
        return last
