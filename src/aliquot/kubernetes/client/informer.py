"""Informers: caches of objects that watches and the responses to the client's own writes keep current."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from aliquot.foundation.logfmt import controller_log
from aliquot.kubernetes.client.client import Api, Selector
from aliquot.kubernetes.client.errors import ApiError, ForbiddenError, NotFoundError
from aliquot.kubernetes.client.object_base import KubeObject, is_older_version
from aliquot.kubernetes.client.watch import (
    Change,
    ErrorListener,
    FullList,
    ObjectChanged,
    ObjectDeleted,
    WatchTiming,
    watch,
)

T = TypeVar("T", bound=KubeObject)
Key = tuple[str, str]
"""Namespace and name; the namespace is empty for cluster-scoped kinds."""
Changed = Callable[[set[Key]], None]
Ended = Callable[[asyncio.Task[None]], None]

KIND_TIMING = WatchTiming(refused_s=15)
"""Timing of informers; a kind that is not installed is listed again every ``refused_s`` seconds."""
LATE_S = 60.0
"""Seconds after a write or deletion in which the watch may still deliver older states."""


class Informer(Generic[T]):
    """Watches and caches the selected objects of a kind.

    The namespace is the client's, the given one, or ``*`` for all. The cache keeps only objects for which ``is_own``
    is true.

    ``changed`` is called with the keys of objects that were created, deleted, or changed in their ``relevant_part``,
    except by the client's own writes. It is called without keys when the kind becomes readable or unreadable.

    ``synced`` is True once the objects are known. ``absent`` is True while the cluster does not serve the kind.
    ``unavailable`` is why the kind cannot be read, empty if it can. If ``report`` is given, failures go to it instead
    of to ``absent``, ``unavailable`` and ``log``. ``source`` says where the right to read the kind comes from, for
    the reason if the server forbids it.
    """

    def __init__(  # noqa: PLR0913 -- what to select and how, each by keyword with a default
        self,
        kind: type[T],
        changed: Changed = lambda _: None,
        *,
        namespace: str | None = None,
        name: str | None = None,
        labels: Selector | None = None,
        fields: Selector | None = None,
        is_own: Callable[[T], bool] = lambda _: True,
        relevant_part: Callable[[T], object] = lambda item: item,
        timing: WatchTiming = KIND_TIMING,
        report: ErrorListener | None = None,
        log: logging.Logger = controller_log,
        source: str = "",
    ) -> None:
        self.kind = kind
        self.synced = False
        self.absent = False
        self.unavailable = ""
        self._items: dict[Key, T] = {}
        self._written: dict[Key, tuple[T, float]] = {}
        self._deleted: dict[str, float] = {}
        self._changed = changed
        self._namespace, self._name, self._labels, self._fields = namespace, name, labels, fields
        self._is_own = is_own
        self._source = source
        self._relevant_part = relevant_part
        self._timing = timing
        self._report = report or self.note_failure
        self._log = log
        self._task: asyncio.Task[None] | None = None

    @property
    def items(self) -> tuple[T, ...]:
        return tuple(self._items.values())

    @property
    def by_name(self) -> dict[str, T]:
        """Objects by name. Not for informers of all namespaces."""
        return {name: item for (_, name), item in self._items.items()}

    def get(self, name: str, namespace: str = "") -> T | None:
        return self._items.get((namespace, name))

    # -- watching

    async def follow(self, api: Api) -> None:
        """Watch forever."""
        changes = watch(
            api,
            self.kind,
            namespace=self._namespace,
            name=self._name,
            labels=self._labels,
            fields=self._fields,
            timing=self._timing,
            report=self._report,
        )
        async for change in changes:
            self.apply(change)
            del change  # a list may be much larger than the cache

    def start(self, api: Api, ended: Ended) -> None:
        """Watch in a task; ``ended`` is called when the task ends, which is unexpected unless it is stopped."""
        self._task = asyncio.create_task(self.follow(api))
        self._task.add_done_callback(ended)

    def stop(self) -> None:
        """Cancel the task of ``start`` without waiting for its end."""
        if self._task is not None:
            self._task.cancel()

    async def close(self) -> None:
        """Cancel the task of ``start`` and wait for its end."""
        self.stop()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    def apply(self, change: Change[T]) -> None:
        """Apply a change from the watch to the cache."""
        match change:
            case FullList(items, version):
                self._replace(items, version)
            case ObjectChanged(item) if self._is_own(item):
                self._put(item)
            case ObjectChanged(item) | ObjectDeleted(item):
                if isinstance(change, ObjectDeleted):
                    self._deleted.pop(item.metadata.uid, None)
                if self._forget(item):
                    self._changed({item.key})

    # -- the client's own writes

    def record_write(self, previous: T | None, written: T) -> None:
        """Put the response to a write into the cache without a ``changed`` call, so that the next read sees it.

        Does nothing if the watch delivered a newer version meanwhile, or the deletion of ``previous``.
        """
        known = self._items.get(written.key)
        if written.metadata.deletion_timestamp is not None and not written.metadata.finalizers:
            self.record_deletion(written)  # the write removed its last finalizer
        elif known is None and previous is not None:
            return
        elif known is not None and known.metadata.resource_version == written.metadata.resource_version:
            return  # the write changed nothing: keep the known object, which _written may name
        elif self._is_own(written) and (known is None or not written.is_older_than(known)):
            self._items[written.key] = written
            if known is None or known.is_older_than(written):
                self._written[written.key] = (written, time.monotonic())

    def record_deletion(self, item: T) -> None:
        """Remove an object that the client deleted, and ignore late events about it."""
        now = time.monotonic()
        self._deleted = {uid: since for uid, since in self._deleted.items() if now - since < LATE_S}
        self._deleted[item.metadata.uid] = now
        self._forget(item)

    # -- events of the watch

    def _replace(self, items: Iterable[T], version: str) -> None:
        """Replace the cache with a list, except for the client's own writes and deletions after its version."""
        listed = {item.key: item for item in items if self._is_own(item) and not self._is_deleted(item)}
        before = self._items
        for key, known in before.items():
            found = listed.get(key)
            if found is None:
                stays = self._is_newer_than_list(known, version)
            else:
                stays = found == known or self._predates_write(found)
            if stays:
                listed[key] = known
        self._items = listed
        self._written = {key: entry for key, entry in self._written.items() if listed.get(key) is entry[0]}
        keys = {key for key in {*before, *listed} if self._differ(before.get(key), listed.get(key))}
        if keys or not self.synced:
            self.synced = True
            self._changed(keys)

    def _put(self, item: T) -> None:
        if self._is_deleted(item) or self._predates_write(item):
            return
        previous = self._items.get(item.key)
        self._items[item.key] = item
        self._written.pop(item.key, None)
        if self._differ(previous, item):
            self._changed({item.key})

    def _differ(self, one: T | None, other: T | None) -> bool:
        if one is None or other is None or one.metadata.uid != other.metadata.uid:
            return one is not other
        return self._relevant_part(one) != self._relevant_part(other)

    def _forget(self, item: T) -> bool:
        """Remove an object from the cache. Returns False if the cache has another one, or none, of its name."""
        known = self._items.get(item.key)
        if known is None or known.metadata.uid != item.metadata.uid:
            return False
        del self._items[item.key]
        self._written.pop(item.key, None)
        return True

    def _is_deleted(self, item: T) -> bool:
        return time.monotonic() - self._deleted.get(item.metadata.uid, -LATE_S) < LATE_S

    def _is_newer_than_list(self, known: T, version: str) -> bool:
        written, since = self._written.get(known.key, (None, 0.0))
        recent = written is known and time.monotonic() - since < LATE_S
        return recent and is_older_version(version, known.metadata.resource_version)

    def _predates_write(self, item: T) -> bool:
        """Report whether an object from the watch is older than the client's own last write.

        Otherwise the watch is right, even with a lower version: etcd may have been restored from a backup.
        """
        known = self._items.get(item.key)
        written, since = self._written.get(item.key, (None, 0.0))
        if known is None or written is not known or known.metadata.uid != item.metadata.uid:
            return False
        return item.is_older_than(known) and time.monotonic() - since < LATE_S

    def note_failure(self, error: ApiError | None) -> None:
        """Record why a try failed; None once the API server answers again."""
        before, missing = (self.absent, self.unavailable), isinstance(error, NotFoundError)
        self.absent = missing or (self.absent and error is not None)
        self.unavailable = "" if error is None or missing else error.brief
        if isinstance(error, ForbiddenError) and self._source:
            self.unavailable += f"; {self._source}"
        if self.unavailable != before[1] and not missing:
            self.log_availability()
        if (self.absent, self.unavailable) == before:
            return
        gone = set(self._items) if missing else set()
        if missing:
            self._items, self.synced = {}, True
        self._changed(gone)

    def log_availability(self) -> None:
        """Log that the kind cannot be read, and why, or that it can be read again."""
        self._log.warning("%s", self.unavailable or f"{self.kind.TYPE} can be read again")


class InformerGroup:
    """Several informers as one. Their owner runs the ``shared`` ones."""

    def __init__(self, *informers: Informer[Any], shared: tuple[Informer[Any], ...] = ()) -> None:
        self._followed = informers
        self.all_informers = (*shared, *informers)

    async def follow(self, api: Api) -> None:
        """Watch forever."""
        async with asyncio.TaskGroup() as group:
            for informer in self._followed:
                group.create_task(informer.follow(api))

    @property
    def unsynced(self) -> str:
        """The first kind that is not read yet; empty if all are. A kind that the cluster lacks counts as read."""
        return next((str(informer.kind.TYPE) for informer in self.all_informers if not informer.synced), "")

    @property
    def synced(self) -> bool:
        """True once all kinds are read."""
        return not self.unsynced

    @property
    def unavailable(self) -> str:
        """Reason why the first unreadable kind cannot be read now; empty if all can."""
        return next((informer.unavailable for informer in self.all_informers if informer.unavailable), "")
