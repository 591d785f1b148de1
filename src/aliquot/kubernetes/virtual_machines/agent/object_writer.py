"""Making the objects tell the truth: one request for each change, each by itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from aliquot.foundation.logfmt import agent_log as log
from aliquot.kubernetes.client.errors import ApiAwayError, ApiError, ConflictError, NotFoundError
from aliquot.kubernetes.client.informer import Shelf
from aliquot.kubernetes.client.object_base import KubeObject
from aliquot.kubernetes.virtual_machines.agent.crd_pruning import Pruned
from aliquot.kubernetes.virtual_machines.agent.informers import Corner
from aliquot.kubernetes.virtual_machines.harvester.node_view import Change

Key = tuple[str, str, str]
Told = Callable[[KubeObject | None, KubeObject], Awaitable[None]]
"""Called with an object before and after a change that was written."""


class Writer:
    """``told`` hears of each change, ``count`` counts requests. What one object refuses hinders no other."""

    def __init__(
        self, corner: Corner, told: Told, count: Callable[[str, str], None], pruned: Pruned | None = None
    ) -> None:
        self._corner = corner
        self._told = told
        self._count = count
        self._refused: dict[Key, str] = {}
        self._pruned = pruned or Pruned()

    def begin(self) -> None:
        """Another look: what was refused may be tried again."""
        self._refused = {}

    @property
    def trouble(self) -> str:
        """The first refusal since ``begin``, or what the cluster's definitions drop; "" if there is neither."""
        return next(iter(self._refused.values()), self._pruned.trouble)

    async def write(self, changes: Sequence[Change]) -> bool:
        """Writes them in their order, but for those that were refused since ``begin``; whether anything is different
        now. Raises ApiAwayError where the server is away: what is left then is left.
        """
        moved = False
        for each in changes:
            change = self._pruned.left(each)
            if change is None or _key(change) in self._refused:
                continue
            try:
                await self._one(change)
                moved = True
            except (ConflictError, NotFoundError):
                moved = await self._again(change) or moved
            except ApiAwayError:
                raise
            except ApiError as error:
                self._refuse(change, f"{error.brief}{f' | next: {error.next_step}' if error.next_step else ''}")
        return moved

    def _refuse(self, change: Change, why: str) -> None:
        sentence = f"{change.verb} {change.kind} {change.name}: {why}"
        self._refused[_key(change)] = sentence
        log.warning("%s", sentence)

    async def _one(self, change: Change) -> None:
        shelf = self._corner.shelf(change.kind)
        former = shelf.named.get(change.name)
        log.info("%s %s %s%s", change.verb, change.kind, change.name, f": {change.why}" if change.why else "")
        self._count(change.verb, change.kind)
        match change.verb:
            case "create":
                await self._create(shelf, change)
            case "delete":
                await self._delete(shelf, change, former)
                return
            case "status":
                written = await self._patch(shelf, change, "status")
                self._pruned.answered(change, written)
                shelf.keep(written)
            case _:
                shelf.keep(await self._patch(shelf, change, None))
        now = shelf.named.get(change.name)
        if now is not None:
            await self._told(former, now)

    async def _create(self, shelf: Shelf[Any], change: Change) -> None:
        body = {**change.body, "metadata": {**change.body.get("metadata", {}), "name": change.name}}
        shelf.keep(await self._corner.api.create(shelf.kind, body))

    async def _patch(self, shelf: Shelf[Any], change: Change, subresource: str | None) -> Any:
        body = dict(change.body)
        if change.version:
            body["metadata"] = {**body.get("metadata", {}), "resourceVersion": change.version}
        return await self._corner.api.patch(shelf.kind, change.name, body, subresource=subresource)

    async def _delete(self, shelf: Shelf[Any], change: Change, former: KubeObject | None) -> None:
        await self._corner.api.delete(shelf.kind, change.name, uid=change.uid or None)
        if former is not None and not former.metadata.finalizers:
            shelf.forget(former)

    async def _again(self, change: Change) -> bool:
        """The object is another than the one that was seen: it is read anew, and the next round decides by what it
        is. Whether it is this node's.
        """
        shelf = self._corner.shelf(change.kind)
        known = shelf.named.get(change.name)
        try:
            found = await self._corner.api.get(shelf.kind, change.name)
        except NotFoundError:
            if known is not None:
                shelf.forget(known)
            return True
        if change.verb == "create" and known is None:
            await self._reclaim(shelf, change, found)
        else:
            shelf.keep(found)
        return change.name in shelf.named

    async def _reclaim(self, shelf: Shelf[Any], change: Change, found: KubeObject) -> None:
        """One that our watch does not show, though it has the name that we would give: it has lost the label by which
        it is watched (a restore from a backup can do that), which it gets back; or it is another node's.
        """
        shelf.keep(found)
        if change.name not in shelf.named:
            owner = getattr(getattr(found, "spec", None), "node_name", "") or "another node"
            self._refuse(change, f"it exists already, and says that it is {owner}'s")
            return
        labels = change.body.get("metadata", {}).get("labels", {})
        if labels and any(found.metadata.labels.get(key) != value for key, value in labels.items()):
            shelf.keep(await self._corner.api.patch(shelf.kind, change.name, {"metadata": {"labels": labels}}))


def _key(change: Change) -> Key:
    return change.verb, change.kind, change.name
