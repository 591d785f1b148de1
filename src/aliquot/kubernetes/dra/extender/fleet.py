"""The published devices of all nodes and the claims, kept current by watches.

A changed node is read again in the background, one at a time, so that the event loop never stands still for long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from aliquot.foundation.event_wait import wait_for_event
from aliquot.kubernetes.client.client import ALL_NAMESPACES, Api
from aliquot.kubernetes.client.informer import KIND_TIMING, Informer, InformerGroup, Key
from aliquot.kubernetes.client.watch import WatchTiming
from aliquot.kubernetes.dra.extender.demand import RequestedClaim
from aliquot.kubernetes.dra.extender.messages import ScheduledPod
from aliquot.kubernetes.dra.extender.published_node import PublishedNode
from aliquot.kubernetes.dra.model.objects import DeviceClass, ResourceSlice

CLAIM_WAIT_S = 0.05
"""How long a request waits for a claim that the scheduler knows already, in seconds."""
_MOST_AT_ONCE = 8
"""Changed nodes that a request reads itself. Of more, it takes the state before."""
_Pool = tuple[str, str]
_Held = tuple[tuple[_Pool, str], ...]


class PublishedFleet:
    """The devices of the cluster by node."""

    def __init__(self, timing: WatchTiming = KIND_TIMING) -> None:
        self.slices = Informer(ResourceSlice, self._slices_changed, timing=timing)
        self.claims = Informer(
            RequestedClaim,
            self._claims_changed,
            namespace=ALL_NAMESPACES,
            relevant_part=lambda item: item.held,
            timing=timing,
        )
        self.classes = Informer(DeviceClass, lambda _: self._work.set(), timing=timing)
        self._informers = InformerGroup(self.slices, self.claims, self.classes)
        self._place_of: dict[str, tuple[str, _Pool]] = {}
        self._slices_of: dict[str, set[str]] = {}
        self._pool_node: dict[_Pool, str] = {}
        self._held: dict[Key, _Held] = {}
        self._allocated: dict[_Pool, dict[str, int]] = {}
        self._nodes: dict[str, PublishedNode] = {}
        self._changed: set[str] = set()
        self._read_once = False
        self._work = asyncio.Event()
        self._claim_seen = asyncio.Event()

    async def run(self, api: Api) -> None:
        """Follow the objects until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._informers.follow(api))
            group.create_task(self.read_changed())

    @property
    def ready(self) -> bool:
        """True once all nodes are read."""
        return self._read_once and self._informers.synced

    def nodes(self, names: Iterable[str]) -> dict[str, PublishedNode | None]:
        """Return the devices of nodes, None for one that publishes none."""
        wanted = tuple(names)
        changed = self._changed.intersection(wanted)
        if len(changed) <= _MOST_AT_ONCE:
            for name in changed:
                self._read(name)
        return {name: self._nodes.get(name) for name in wanted}

    async def claims_of(self, pod: ScheduledPod) -> tuple[RequestedClaim, ...] | None:
        """Return the claims of a pod, in its order. None if one of them is not known within ``CLAIM_WAIT_S``."""
        end = asyncio.get_running_loop().time() + CLAIM_WAIT_S
        while True:
            self._claim_seen.clear()
            found = tuple(self.claims.get(name, pod.metadata.namespace) for name in pod.claim_names)
            known = tuple(each for each in found if each is not None)
            left = end - asyncio.get_running_loop().time()
            if len(known) == len(found):
                return known
            if left <= 0:
                return None
            await wait_for_event(self._claim_seen, left)

    async def read_changed(self) -> None:
        """Read changed nodes, until cancelled."""
        while True:
            await self._work.wait()
            self._work.clear()
            while self._changed:
                self._read(next(iter(self._changed)))
                await asyncio.sleep(0)
            self._read_once = self._read_once or self._informers.synced

    def _read(self, node: str) -> None:
        self._changed.discard(node)
        names = sorted(self._slices_of.get(node, ()))
        slices = [found for name in names if (found := self.slices.get(name)) is not None]
        if not slices:
            self._nodes.pop(node, None)
            return
        pools = {(each.spec.driver, each.spec.pool.name) for each in slices}
        allocated = {(pool[0], device) for pool in pools for device in self._allocated.get(pool, ())}
        self._nodes[node] = PublishedNode(slices, allocated)

    def _mark(self, node: str) -> None:
        self._changed.add(node)
        self._work.set()

    def _slices_changed(self, keys: set[Key]) -> None:
        for _, name in keys:
            found = self.slices.get(name)
            self._forget(name)
            if found is not None and found.spec.node_name:
                node, pool = found.spec.node_name, (found.spec.driver, found.spec.pool.name)
                self._place_of[name] = node, pool
                self._slices_of.setdefault(node, set()).add(name)
                self._pool_node[pool] = node
                self._mark(node)
        self._work.set()

    def _forget(self, name: str) -> None:
        """Forget where a slice was, and its pool and node if it was their last one."""
        if name not in self._place_of:
            return
        node, pool = self._place_of.pop(name)
        self._mark(node)
        left = self._slices_of[node]
        left.discard(name)
        if not any(self._place_of[other][1] == pool for other in left):
            self._pool_node.pop(pool, None)
        if not left:
            del self._slices_of[node]

    def _claims_changed(self, keys: set[Key]) -> None:
        for namespace, name in keys:
            found = self.claims.get(name, namespace)
            before = self._held.pop((namespace, name), ())
            now = () if found is None else tuple(((each.driver, each.pool), each.device) for each in found.held)
            self._count(before, -1)
            self._count(now, 1)
            if now:
                self._held[namespace, name] = now
        self._claim_seen.set()
        self._work.set()

    def _count(self, held: _Held, change: int) -> None:
        for pool, device in held:
            devices = self._allocated.setdefault(pool, {})
            left = devices.pop(device, 0) + change
            if left > 0:
                devices[device] = left
            if not devices:
                del self._allocated[pool]
            if pool in self._pool_node:
                self._mark(self._pool_node[pool])
