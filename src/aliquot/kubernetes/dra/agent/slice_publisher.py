"""Publishes the devices of a node as ResourceSlices, with as few writes as possible."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import Any, Protocol

from aliquot.foundation.logfmt import agent_log as log
from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.client.errors import ConflictError, NotFoundError
from aliquot.kubernetes.client.informer import Informer
from aliquot.kubernetes.client.objects import Node
from aliquot.kubernetes.dra.agent import slice_changes
from aliquot.kubernetes.dra.agent.resource_objects import ResourceSlice
from aliquot.kubernetes.dra.agent.slice_changes import HiddenDevices, PoolState, SliceContent
from aliquot.kubernetes.dra.plugin.errors import OtherDriverError

OWNER_LABEL = "app.kubernetes.io/managed-by"
OWNER = "aliquot"
MOST_TRIES = 4
"""Attempts of a publication, if other programs change or delete the slices meanwhile."""
_LONGEST_NAME = 253


class Publication(Protocol):
    """What a node offers."""

    @property
    def slices(self) -> Sequence[SliceContent]:
        """The slices in order, of one pool or of several. The order of a pool's slices and devices is the scheduler's
        order of choice.
        """
        ...


class SlicePublisher:
    """The ResourceSlices of one driver on one node.

    ``slices`` must be followed by the owner. ``changed`` is called when a slice changes, except by own writes.
    ``problem`` is why the slices cannot be written; empty if they can.
    """

    def __init__(self, api: Api, node: str, driver: str, changed: Callable[[], None]) -> None:
        self._api = api
        self._node = node
        self._driver = driver
        self._hidden = HiddenDevices()
        self.writes = 0
        self.clock = time.monotonic
        self.slices = Informer(
            ResourceSlice,
            lambda _: changed(),
            fields={"spec.nodeName": node, "spec.driver": driver},
            relevant_part=lambda item: item.spec,
            log=log,
        )

    @property
    def problem(self) -> str:
        if self.slices.absent:
            return "this cluster does not serve resourceslices.resource.k8s.io/v1: it needs Kubernetes 1.34 or later"
        return self.slices.unavailable

    def refuse_other_driver(self) -> None:
        """Raise OtherDriverError if another program publishes slices of this driver for this node."""
        foreign = next((each for each in self.slices.items if not _is_ours(each)), None)
        if foreign is not None:
            raise OtherDriverError(
                f"another DRA driver publishes devices of {self._driver} on this node (ResourceSlice {foreign.name})",
                details=("two drivers of one name would give the same GPUs to different pods",),
                next_step="remove that driver from the node, then run: kubectl delete resourceslice " + foreign.name,
            )

    async def publish(
        self, wanted: Publication, allocated: Collection[tuple[str, str]] | None, node: Node
    ) -> float | None:
        """Write what differs. Return the seconds until the next write is due, None if none is.

        ``allocated`` are pools and names of the devices that claims have, None if that is not known. ``node`` becomes
        the owner of the slices. Raises ApiError and OtherDriverError.
        """
        self.refuse_other_driver()
        for _ in range(MOST_TRIES - 1):
            try:
                return await self._publish(wanted.slices, allocated, node)
            except NotFoundError:
                continue  # kubelet deletes the slices of a driver that it thinks gone
            except ConflictError:
                await self._read_again()
        return await self._publish(wanted.slices, allocated, node)

    async def _publish(
        self, wanted: Sequence[SliceContent], allocated: Collection[tuple[str, str]] | None, node: Node
    ) -> float | None:
        pools = dict.fromkeys((*(each.pool for each in wanted), *(each.pool for each in self.slices.items)))
        waits: list[float] = []
        for pool in pools:
            published = self._published(pool)
            taken = None if allocated is None else {device for owner, device in allocated if owner == pool}
            content = [each for each in wanted if each.pool == pool]
            state = slice_changes.settle(published, content, taken, self._hidden, self.clock())
            waits += [state.next_s] if state.next_s is not None else []
            await self._write(published, state, node)
        return min(waits, default=None)

    def _published(self, pool: str) -> list[ResourceSlice | None]:
        """Return the slices of a pool by their place, which is the first part of their name."""
        mine = {_place(each): each for each in self.slices.items if each.pool == pool}
        return [mine.get(place) for place in range(max(mine, default=-1) + 1)]

    async def _write(self, published: Sequence[ResourceSlice | None], state: PoolState, node: Node) -> None:
        generation = slice_changes.generation_of(published, state)
        count = len(state.slices)
        for place, content in enumerate(state.slices):
            present = published[place] if place < len(published) else None
            fields = slice_changes.spec_fields(content, generation, count)
            if present is None:
                await self._create(place, content.pool, fields, node)
            elif changed := slice_changes.changed_fields(present.spec, fields):
                await self._patch(present, changed)
        for each in published[count:]:
            if each is not None:
                await self._delete(each)

    async def _create(self, place: int, pool: str, fields: Mapping[str, Any], node: Node) -> None:
        name = slice_name(place, pool, self._driver)
        owner = {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.metadata.uid, "controller": True}
        metadata = {"name": name, "labels": {OWNER_LABEL: OWNER}, "ownerReferences": [owner]}
        body = {"metadata": metadata, "spec": {"driver": self._driver, "nodeName": self._node, **fields}}
        self._count("published", name, fields)
        self.slices.record_write(None, await self._api.create(ResourceSlice, body))

    async def _patch(self, present: ResourceSlice, fields: Mapping[str, Any]) -> None:
        body = {"metadata": {"resourceVersion": present.metadata.resource_version}, "spec": fields}
        self._count("changed", present.name, fields)
        try:
            self.slices.record_write(present, await self._api.patch(ResourceSlice, present.name, body))
        except NotFoundError:
            self.slices.record_deletion(present)
            raise

    async def _delete(self, present: ResourceSlice) -> None:
        self._count("removed", present.name, {})
        with suppress(NotFoundError):
            await self._api.delete(ResourceSlice, present.name, uid=present.metadata.uid)
        self.slices.record_deletion(present)

    def _count(self, verb: str, name: str, fields: Mapping[str, Any]) -> None:
        self.writes += 1
        devices = fields.get("devices")
        more = f": {len(devices)} devices" if devices is not None else ""
        log.info("ResourceSlice %s is %s%s", name, verb, more)

    async def _read_again(self) -> None:
        """Read the slices from the API server, after another program changed them."""
        selection = self._api.selection(
            ResourceSlice, fields={"spec.nodeName": self._node, "spec.driver": self._driver}
        )
        found = await self._api.snapshot(ResourceSlice, selection)
        present = {each.name for each in found.items}
        for each in found.items:
            self.slices.record_write(self.slices.get(each.name), each)
        for known in self.slices.items:
            if known.name not in present:
                self.slices.record_deletion(known)
        self.refuse_other_driver()


def slice_name(place: int, pool: str, driver: str) -> str:
    """Return the name of a pool's slice. The scheduler reads the slices of a pool in the order of their names."""
    name = f"{place:02x}-{driver}-{pool}"
    if len(name) <= _LONGEST_NAME:
        return name
    return f"{name[: _LONGEST_NAME - 17].rstrip('.-')}-{sha256(name.encode()).hexdigest()[:16]}"


def _place(item: ResourceSlice) -> int:
    found = re.match(r"([0-9a-f]{2})-", item.name)
    return int(found[1], 16) if found else 0


def _is_ours(item: ResourceSlice) -> bool:
    return item.metadata.labels.get(OWNER_LABEL) == OWNER
