"""What the controller knows of one kind, kept by a watch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from aliquot.foundation.logfmt import controller_log as log
from aliquot.kubernetes.client.client import ALL_NAMESPACES, Api
from aliquot.kubernetes.client.errors import ApiError, NotFoundError
from aliquot.kubernetes.client.objects import KubeObject
from aliquot.kubernetes.client.watch import InitialList, ObjectChanged, ObjectDeleted, WatchTiming, watch

T = TypeVar("T", bound=KubeObject)

KIND_TIMING = WatchTiming(refused_s=15)
"""A kind that is not installed is asked for again this often, in seconds."""


class KindInformer(Generic[T]):
    """``synced`` is True once it is clear what there is; a kind that the cluster does not have (``absent``) is clear,
    too: nothing. ``unavailable`` is why the API server cannot be asked, "" if it can. ``changed`` is called with the
    names of objects that came, changed or went. Names are ``namespace/name`` where every namespace is followed.
    """

    def __init__(self, kind: type[T], changed: Callable[[set[str]], None], timing: WatchTiming = KIND_TIMING) -> None:
        self.kind = kind
        self.items: dict[str, T] = {}
        self.synced = False
        self.unavailable = ""
        self.absent = False
        self._changed = changed
        self._timing = timing
        self._all_namespaces = False

    async def follow(
        self, api: Api, *, name: str | None = None, namespace: str | None = None, labels: str | None = None
    ) -> None:
        """For ever: everything of the kind (in the client's namespace, or the one that is given, or ``*`` for every
        one) that these labels select, or the one object of that name.
        """
        self._all_namespaces = namespace == ALL_NAMESPACES
        changes = watch(
            api, self.kind, namespace=namespace, name=name, labels=labels, timing=self._timing, report=self._report
        )
        async for change in changes:
            self.absent = False
            match change:
                case InitialList(items):
                    self._replace({self._key(item): item for item in items})
                case ObjectChanged(item):
                    self.items[self._key(item)] = item
                    self._changed({self._key(item)})
                case ObjectDeleted(item):
                    self.items.pop(self._key(item), None)
                    self._changed({self._key(item)})

    def record_write(self, previous: T | None, written: T) -> None:
        """What a write answered, so that the next look sees it; unless the watch brought something newer meanwhile."""
        if self.items.get(self._key(written)) is previous:
            self.items[self._key(written)] = written

    def _key(self, item: T) -> str:
        return "/".join(item.key) if self._all_namespaces else item.name

    def _replace(self, items: dict[str, T]) -> None:
        names = set(self.items) | set(items)
        self.items, self.synced = items, True
        self._changed(names)

    def _report(self, error: ApiError | None) -> None:
        if isinstance(error, NotFoundError):
            self.unavailable = ""
            self.absent = True
            if not self.synced or self.items:
                self._replace({})
            return
        before, self.unavailable = self.unavailable, "" if error is None else error.brief
        if self.unavailable != before:
            log.warning("%s", self.unavailable or f"{self.kind.TYPE} can be read again")
