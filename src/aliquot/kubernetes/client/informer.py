"""What the agent knows of one kind, kept by a watch, with what our own writes were answered."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from aliquot.foundation.logfmt import agent_log as log
from aliquot.kubernetes.client.client import Api, Selector
from aliquot.kubernetes.client.errors import ApiError, NotFoundError
from aliquot.kubernetes.client.object_base import KubeObject
from aliquot.kubernetes.client.watch import InitialList, ObjectChanged, ObjectDeleted, WatchTiming, watch

T = TypeVar("T", bound=KubeObject)
Key = tuple[str, str]

TIMING = WatchTiming(refused_s=15)
"""A kind that is not installed is asked for again this often, in seconds."""
_REMEMBERED = 4096
LATE_S = 60.0
"""How long after a write the watch may still tell of what was before it."""


class Informer(Generic[T]):
    """``is_own`` says which objects are this node's; others are forgotten at once. ``relevant_part`` is what of an
    object matters here: ``wake`` is called when it changes, but not for what we wrote ourselves. ``synced`` is True
    once it is clear what there is, ``absent`` while the cluster does not have the kind; ``unavailable`` is why it
    cannot be read, "" if it can.
    """

    def __init__(
        self,
        kind: type[T],
        wake: Callable[[], None],
        *,
        is_own: Callable[[T], bool] = lambda _: True,
        relevant_part: Callable[[T], object] = lambda item: item,
    ) -> None:
        self.kind = kind
        self.synced = False
        self.absent = False
        self.unavailable = ""
        self._items: dict[Key, T] = {}
        self._deleted_uids: dict[str, None] = {}
        self._written: dict[Key, tuple[T, float]] = {}
        self._wake = wake
        self._is_own = is_own
        self._relevant_part = relevant_part

    @property
    def items(self) -> tuple[T, ...]:
        return tuple(self._items.values())

    @property
    def by_name(self) -> dict[str, T]:
        """By name; for kinds that are in no namespace."""
        return {name: item for (_, name), item in self._items.items()}

    async def follow(
        self,
        api: Api,
        *,
        namespace: str | None = None,
        name: str | None = None,
        labels: Selector | None = None,
        fields: Selector | None = None,
    ) -> None:
        """For ever: what these selectors select."""
        changes = watch(
            api,
            self.kind,
            namespace=namespace,
            name=name,
            labels=labels,
            fields=fields,
            timing=TIMING,
            report=self._report,
        )
        async for change in changes:
            match change:
                case InitialList(items):
                    self._replace(items)
                case ObjectChanged(item):
                    self._put(item)
                case ObjectDeleted(item):
                    self._drop(item)

    def record_write(self, written: T) -> None:
        """What a write was answered: the next look must see it, and it is no news."""
        if _is_finally_deleted(written):
            self.record_deletion(written)
        elif self._is_own(written) and not self._outdated(written):
            known = self._items.get(written.key)
            self._items[written.key] = written
            if known is None or _is_older(known, written):  # else nothing was written, and nothing will show
                self._written[written.key] = (written, time.monotonic())

    def record_deletion(self, item: T) -> None:
        """It is gone by our own hand. What the watch still tells of its life is late."""
        self._deleted_uids[item.metadata.uid] = None
        for uid in list(self._deleted_uids)[:-_REMEMBERED]:
            del self._deleted_uids[uid]
        known = self._items.get(item.key)
        if known is not None and known.metadata.uid == item.metadata.uid:
            del self._items[item.key]
            self._written.pop(item.key, None)

    def _replace(self, items: Iterable[T]) -> None:
        """A list is the whole truth, but for what we wrote after it was made."""
        listed = {
            item.key: item for item in items if self._is_own(item) and item.metadata.uid not in self._deleted_uids
        }
        for key, known in self._items.items():
            if key in listed and self._predates_write(listed[key]):
                listed[key] = known
        self._items, self.synced, self.absent = listed, True, False
        self._wake()

    def _put(self, item: T) -> None:
        if not self._is_own(item):
            self._drop(item)  # it has become another node's
            return
        if item.metadata.uid in self._deleted_uids or self._predates_write(item):
            return
        previous = self._items.get(item.key)
        self._items[item.key] = item
        if previous is None or self._relevant_part(previous) != self._relevant_part(item):
            self._wake()

    def _drop(self, item: T) -> None:
        known = self._items.get(item.key)
        if known is not None and known.metadata.uid == item.metadata.uid:
            del self._items[item.key]
            self._written.pop(item.key, None)
            self._wake()

    def _outdated(self, item: T) -> bool:
        known = self._items.get(item.key)
        return known is not None and known.metadata.uid == item.metadata.uid and _is_older(item, known)

    def _predates_write(self, item: T) -> bool:
        """What the watch tells is the truth, lower versions included: a store that went back to a backup has them. But
        it may be from before a write of ours, until that shows in the watch, too.
        """
        written, since = self._written.get(item.key, (None, 0.0))
        ours = written is not None and self._items.get(item.key) is written
        return ours and self._outdated(item) and time.monotonic() - since < LATE_S

    def _report(self, error: ApiError | None) -> None:
        if isinstance(error, NotFoundError):
            self.unavailable = ""
            if not self.absent:
                self._items, self.synced, self.absent = {}, True, True
                self._wake()
            return
        before, self.unavailable = self.unavailable, "" if error is None else error.brief
        if self.unavailable != before:
            log.warning("%s", self.unavailable or f"{self.kind.TYPE} can be read again")
            self._wake()


def _is_finally_deleted(item: KubeObject) -> bool:
    """True for the answer to the write that took the last finalizer of an object that was to be deleted."""
    return item.metadata.deletion_timestamp is not None and not item.metadata.finalizers


def _is_older(one: KubeObject, other: KubeObject) -> bool:
    older, newer = one.metadata.resource_version, other.metadata.resource_version
    return older.isdecimal() and newer.isdecimal() and int(older) < int(newer)
