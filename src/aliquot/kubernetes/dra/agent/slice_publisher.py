"""Publishes the devices of a node as ResourceSlices, with as few writes as possible."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import msgspec

from aliquot.foundation.logfmt import agent_log as log
from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.client.errors import ApiError, ConflictError, ForbiddenError, NotFoundError
from aliquot.kubernetes.client.informer import Informer
from aliquot.kubernetes.client.objects import Node
from aliquot.kubernetes.dra.model.layout import SliceLayout, is_combined
from aliquot.kubernetes.dra.model.naming import DriverNaming
from aliquot.kubernetes.dra.model.objects import ResourceSlice
from aliquot.kubernetes.dra.model.publication import Publication, next_publication
from aliquot.kubernetes.dra.model.ranking import PublishedChoice
from aliquot.kubernetes.dra.model.slices import build_slices, read_publication
from aliquot.kubernetes.dra.model.validation import validate_slices
from aliquot.kubernetes.dra.model.writes import SliceWrites, plan_writes
from aliquot.kubernetes.dra.plugin.errors import OtherDriverError

OWNER_LABEL = "app.kubernetes.io/managed-by"
OWNER = "aliquot"
MOST_TRIES = 4
"""Attempts of a publication, if other programs change or delete the slices meanwhile."""


class SlicePublisher:
    """The ResourceSlices of one driver on one node.

    ``slices`` must be followed by the owner. ``changed`` is called when a slice changes, except by own writes.
    ``problem`` is why the slices cannot be written; empty if they can. ``writes`` counts them.
    """

    def __init__(
        self, api: Api, node: str, naming: DriverNaming, changed: Callable[[], None], layout: SliceLayout | None = None
    ) -> None:
        self._api = api
        self._node = node
        self._naming = naming
        self._layout = layout or SliceLayout()
        self._knows_version = False
        self._fields = {"spec.nodeName": node, "spec.driver": naming.driver}
        self.writes = 0
        self.clock: Callable[[], datetime] = lambda: datetime.now(UTC)
        self.slices = Informer(
            ResourceSlice,
            lambda _: changed(),
            fields=self._fields,
            relevant_part=lambda item: item.spec,
            log=log,
        )

    @property
    def problem(self) -> str:
        if self.slices.absent:
            return "this cluster does not serve resourceslices.resource.k8s.io/v1: it needs Kubernetes 1.34"
        return self.slices.unavailable

    @property
    def published(self) -> Publication:
        """The devices that the slices publish now, as far as this client knows."""
        return read_publication(self.slices.items)

    def refuse_other_driver(self) -> None:
        """Raise OtherDriverError if another program publishes slices of this driver for this node."""
        foreign = next((each for each in self.slices.items if not _is_ours(each)), None)
        if foreign is not None:
            raise OtherDriverError(
                f"another DRA driver publishes devices of {self._naming.driver} on this node "
                f"(ResourceSlice {foreign.name})",
                details=("two drivers of one name would give the same GPUs to different pods",),
                next_step=f"remove that driver from the node, then run: kubectl delete resourceslice {foreign.name}",
            )

    async def publish(self, wanted: PublishedChoice, allocated: Collection[str] | None, node: Node) -> float | None:
        """Write what differs. Return the seconds until the next write is due, None if none is.

        ``allocated`` are the names of the devices that claims have. None if that is not known: then devices are only
        added. ``node`` becomes the owner of the slices. Raises ApiError, OtherDriverError, and InvalidSlicesError;
        then nothing was written.
        """
        self.refuse_other_driver()
        try:
            await self._choose_shape()
            return await self._publish_with_retries(wanted, allocated, node)
        except ApiError:
            self._knows_version = False  # the API server may be another one when it answers again
            raise

    async def _choose_shape(self) -> None:
        """Choose the shape of slices that the API server accepts: that of 1.34 differs from later ones."""
        if not self._knows_version:
            with suppress(ForbiddenError):  # then it is taken for a present one
                release = (await self._api.version()).release
                self._layout = msgspec.structs.replace(self._layout, combined=is_combined(release))
            self._knows_version = True

    async def _publish_with_retries(
        self, wanted: PublishedChoice, allocated: Collection[str] | None, node: Node
    ) -> float | None:
        for _ in range(MOST_TRIES - 1):
            try:
                return await self._publish(wanted, allocated, node)
            except NotFoundError:
                continue  # kubelet deletes the slices of a driver that it thinks gone
            except ConflictError:
                await self.read_again()
        return await self._publish(wanted, allocated, node)

    async def read_again(self) -> None:
        """Read the slices from the API server. Raises ApiError, and OtherDriverError if another driver's are there."""
        found = await self._api.snapshot(ResourceSlice, self._api.selection(ResourceSlice, fields=self._fields))
        present = {each.name for each in found.items}
        for each in found.items:
            self.slices.record_write(self.slices.get(each.name), each)
        for known in self.slices.items:
            if known.name not in present:
                self.slices.record_deletion(known)
        self.refuse_other_driver()

    async def _publish(self, wanted: PublishedChoice, allocated: Collection[str] | None, node: Node) -> float | None:
        before, now = self.published, self.clock()
        taken = {device.name for device in before.devices} if allocated is None else allocated
        found = next_publication(before, wanted, taken, now, self._layout)
        slices = build_slices(found, self._naming, self._node, layout=self._layout)
        validate_slices(slices, self._node, combined=self._layout.combined)
        await self._write(plan_writes(self.slices.items, slices, self._node), node)
        due = found.due()
        return None if due is None else max(0.0, (due - now).total_seconds())

    async def _write(self, writes: SliceWrites, node: Node) -> None:
        owner = {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.metadata.uid, "controller": True}
        for each in writes.create:
            metadata = {"name": each.name, "labels": {OWNER_LABEL: OWNER}, "ownerReferences": [owner]}
            self._count("published", each)
            body = {"metadata": metadata, "spec": msgspec.to_builtins(each.spec)}
            self.slices.record_write(None, await self._api.create(ResourceSlice, body))
        for each in writes.update:
            await self._update(each)
        for each in writes.delete:
            self._count("removed", each)
            with suppress(NotFoundError):
                await self._api.delete(ResourceSlice, each.name, uid=each.metadata.uid)
            self.slices.record_deletion(each)

    async def _update(self, wanted: ResourceSlice) -> None:
        present = self.slices.get(wanted.name)
        body = {"metadata": {"resourceVersion": wanted.metadata.resource_version}, "spec": _replacing(wanted)}
        self._count("changed", wanted)
        try:
            self.slices.record_write(present, await self._api.patch(ResourceSlice, wanted.name, body))
        except NotFoundError:
            if present is not None:
                self.slices.record_deletion(present)
            raise

    def _count(self, verb: str, each: ResourceSlice) -> None:
        self.writes += 1
        log.info("ResourceSlice %s is %s: %d devices", each.name, verb, len(each.spec.devices))


def _replacing(wanted: ResourceSlice) -> Mapping[str, Any]:
    """Return a spec as a merge patch, which keeps no list of the present one."""
    return {"devices": None, "sharedCounters": None, **msgspec.to_builtins(wanted.spec)}


def _is_ours(item: ResourceSlice) -> bool:
    return item.metadata.labels.get(OWNER_LABEL) == OWNER
