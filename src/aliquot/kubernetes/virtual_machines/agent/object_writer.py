"""Writes of the node's objects, with one request for each change."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from aliquot.foundation.logfmt import agent_log as log
from aliquot.kubernetes.client.errors import ApiError, ApiUnavailableError, ConflictError, NotFoundError
from aliquot.kubernetes.client.informer import Informer
from aliquot.kubernetes.client.object_base import KubeObject
from aliquot.kubernetes.virtual_machines.agent.crd_pruning import PrunedFields
from aliquot.kubernetes.virtual_machines.agent.informers import NodeDeviceInformers
from aliquot.kubernetes.virtual_machines.harvester.node_view import ObjectChange

Key = tuple[str, str, str]
ChangeListener = Callable[[KubeObject | None, KubeObject], Awaitable[None]]
"""Called with an object before and after a change that was written."""


class ObjectWriter:
    """The writer of object changes. A rejected change does not affect the other objects.

    ``on_change`` is called for each change, ``count`` counts requests.
    """

    def __init__(
        self,
        informers: NodeDeviceInformers,
        on_change: ChangeListener,
        count: Callable[[str, str], None],
        pruned: PrunedFields | None = None,
    ) -> None:
        self._informers = informers
        self._on_change = on_change
        self._count = count
        self._refused: dict[Key, str] = {}
        self._pruned = pruned or PrunedFields()

    def begin_round(self) -> None:
        """Begin a new round, in which rejected changes are tried again."""
        self._refused = {}

    @property
    def error(self) -> str:
        """The first rejection since ``begin_round``, or the fields that the cluster's CRDs drop; "" if there is
        neither.
        """
        return next(iter(self._refused.values()), self._pruned.error)

    async def write(self, changes: Sequence[ObjectChange]) -> bool:
        """Write the changes in order, except for those that were rejected since ``begin_round``.

        Return whether anything changed. Raise ApiUnavailableError if the server is unreachable; the other changes are
        then not written.
        """
        changed = False
        for each in changes:
            change = self._pruned.without_pruned(each)
            if change is None or _key(change) in self._refused:
                continue
            try:
                await self._write_one(change)
                changed = True
            except (ConflictError, NotFoundError):
                changed = await self._refetch(change) or changed
            except ApiUnavailableError:
                raise
            except ApiError as error:
                self._refuse(change, error.one_line)
        return changed

    def _refuse(self, change: ObjectChange, why: str) -> None:
        sentence = f"{change.verb} {change.kind} {change.name}: {why}"
        self._refused[_key(change)] = sentence
        log.warning("%s", sentence)

    async def _write_one(self, change: ObjectChange) -> None:
        informer = self._informers.informer(change.kind)
        previous = informer.by_name.get(change.name)
        log.info("%s %s %s%s", change.verb, change.kind, change.name, f": {change.why}" if change.why else "")
        self._count(change.verb, change.kind)
        match change.verb:
            case "create":
                await self._create(informer, change)
            case "delete":
                await self._delete(informer, change, previous)
                return
            case "status":
                written = await self._patch(informer, change, "status")
                self._pruned.learn(change, written)
                informer.record_write(previous, written)
            case _:
                informer.record_write(previous, await self._patch(informer, change, None))
        now = informer.by_name.get(change.name)
        if now is not None:
            await self._on_change(previous, now)

    async def _create(self, informer: Informer[Any], change: ObjectChange) -> None:
        body = {**change.body, "metadata": {**change.body.get("metadata", {}), "name": change.name}}
        informer.record_write(None, await self._informers.api.create(informer.kind, body))

    async def _patch(self, informer: Informer[Any], change: ObjectChange, subresource: str | None) -> Any:
        body = dict(change.body)
        if change.version:
            body["metadata"] = {**body.get("metadata", {}), "resourceVersion": change.version}
        return await self._informers.api.patch(informer.kind, change.name, body, subresource=subresource)

    async def _delete(self, informer: Informer[Any], change: ObjectChange, previous: KubeObject | None) -> None:
        await self._informers.api.delete(informer.kind, change.name, uid=change.uid or None)
        if previous is not None and not previous.metadata.finalizers:
            informer.record_deletion(previous)

    async def _refetch(self, change: ObjectChange) -> bool:
        """Read an object again that differs from the one that was observed; the next round decides with its new
        content.

        Return whether the object belongs to this node.
        """
        informer = self._informers.informer(change.kind)
        known = informer.by_name.get(change.name)
        try:
            found = await self._informers.api.get(informer.kind, change.name)
        except NotFoundError:
            if known is not None:
                informer.record_deletion(known)
            return True
        if change.verb == "create" and known is None:
            await self._reclaim(informer, change, found)
        else:
            informer.record_write(known, found)
        return change.name in informer.by_name

    async def _reclaim(self, informer: Informer[Any], change: ObjectChange, found: KubeObject) -> None:
        """Adopt an object that has the name of a new one, but that our watch does not show.

        If it lost the label of the watch, for example in a restore from a backup, set the label again. If it belongs to
        another node, reject the change.
        """
        informer.record_write(None, found)
        if change.name not in informer.by_name:
            owner = getattr(getattr(found, "spec", None), "node_name", "") or "another node"
            self._refuse(change, f"it exists already and belongs to {owner}")
            return
        labels = change.body.get("metadata", {}).get("labels", {})
        if labels and any(found.metadata.labels.get(key) != value for key, value in labels.items()):
            labelled = await self._informers.api.patch(informer.kind, change.name, {"metadata": {"labels": labels}})
            informer.record_write(found, labelled)


def _key(change: ObjectChange) -> Key:
    return change.verb, change.kind, change.name
