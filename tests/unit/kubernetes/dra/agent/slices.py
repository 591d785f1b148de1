"""An API server for the ResourceSlices of one node, in memory, that checks the rules after each write."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from aliquot.kubernetes.client.client import ObjectSelection
from aliquot.kubernetes.client.codec import ObjectList
from aliquot.kubernetes.client.errors import ApiError, ConflictError, NotFoundError
from aliquot.kubernetes.client.objects import Node, ObjectMeta
from aliquot.kubernetes.client.server_version import ServerVersion
from aliquot.kubernetes.dra.agent.slice_publisher import SlicePublisher
from aliquot.kubernetes.dra.model.objects import ResourceSlice
from aliquot.kubernetes.dra.model.ranking import PublishedChoice
from support import factory
from unit.kubernetes.dra.model.nodes import A100, NAMING, offered

NODE = Node(metadata=ObjectMeta(name="n1", uid="node-uid"))
OFFER = offered(factory.inventory(A100, enabled=True))
NAMES = [device.name for device in OFFER.devices]


def choice(*numbers: int, **more: Any) -> PublishedChoice:
    """Return a choice of these devices of an A100; ``more`` are fields of all of them."""
    devices = (msgspec.structs.replace(OFFER.devices[n], **more) for n in numbers)
    return PublishedChoice(tuple(devices), OFFER.counter_sets)


class SliceServer:
    """The slices, as the API server keeps them. ``before`` runs before each write and may raise."""

    def __init__(self) -> None:
        self.items: dict[str, ResourceSlice] = {}
        self.allocated: frozenset[str] = frozenset()
        self.log: list[str] = []
        self.before: Callable[[str], None] = lambda verb: None
        self.holes = 0
        self.release = (1, 36)
        self.versions_read = 0
        self._version = 0

    async def version(self) -> ServerVersion:
        self.versions_read += 1
        return ServerVersion(*map(str, self.release))

    def selection(self, kind: object, **more: Any) -> ObjectSelection:
        return ObjectSelection()

    async def snapshot(self, kind: object, selection: ObjectSelection) -> ObjectList[ResourceSlice]:
        return ObjectList(ObjectMeta(), tuple(self.items.values()))  # type: ignore[arg-type]

    async def create(self, kind: object, body: Mapping[str, Any]) -> ResourceSlice:
        self.before("create")
        name = body["metadata"]["name"]
        if name in self.items:
            raise ConflictError(f"{name} already exists", reason="AlreadyExists")
        self._version += 1
        plain = {**body, "metadata": {**body["metadata"], "uid": f"uid-{self._version}"}}
        return self._put(plain, "create")

    async def patch(self, kind: object, name: str, body: Mapping[str, Any]) -> ResourceSlice:
        self.before("patch")
        if name not in self.items:
            raise NotFoundError(f"{name} not found")
        present = msgspec.to_builtins(self.items[name])
        if body["metadata"]["resourceVersion"] != present["metadata"]["resourceVersion"]:
            raise ConflictError(f"{name} has changed")
        spec = {k: v for k, v in (present["spec"] | body["spec"]).items() if v is not None}
        return self._put({**present, "spec": spec}, "patch")

    async def delete(self, kind: object, name: str, *, uid: str) -> None:
        self.before("delete")
        if name not in self.items:
            raise NotFoundError(f"{name} not found")
        del self.items[name]
        self.log.append("delete")

    def _put(self, plain: dict[str, Any], verb: str) -> ResourceSlice:
        self._version += 1
        plain = msgspec.json.decode(msgspec.json.encode(plain))
        for each in plain["spec"].get("devices") or ():
            for taint in each.get("taints") or ():
                taint.setdefault("timeAdded", "2026-11-28T00:00:00Z")
        plain["metadata"]["resourceVersion"] = str(self._version)
        made = msgspec.convert(plain, ResourceSlice)
        if made.spec.devices and made.spec.shared_counters and self.release >= (1, 35):
            raise ApiError("spec: exactly one of devices and sharedCounters is required", status=422)
        self.items[made.name] = made
        self.log.append(verb)
        self.check()
        return made

    def check(self) -> None:
        """Check what a scheduler sees at this moment."""
        newest = max(each.spec.pool.generation for each in self.items.values())
        seen = [each for each in self.items.values() if each.spec.pool.generation == newest]
        names = [device.name for each in seen for device in each.spec.devices]
        assert len(set(names)) == len(names), "a device is in two slices"
        assert all(len(each.spec.devices) <= 64 for each in seen)
        if any(each.spec.pool.resource_slice_count != len(seen) for each in seen):
            self.holes += 1
        else:
            assert self.allocated <= set(names), "an allocated device is not published"

    def devices(self) -> list[str]:
        """Return the names of the devices in the scheduler's order, tainted ones with ``!``."""
        slices = sorted(self.items.values(), key=lambda each: each.name)
        return [d.name + "!" * bool(d.taints) for each in slices for d in each.spec.devices]


class Bed:
    """A publisher with its server and a clock."""

    def __init__(self) -> None:
        self.server = SliceServer()
        self.now = datetime(2026, 11, 28, 12, tzinfo=UTC)
        self.restart()

    def restart(self) -> None:
        self.publisher = SlicePublisher(self.server, "n1", NAMING, lambda: None)  # type: ignore[arg-type]
        self.publisher.clock = lambda: self.now
        for each in self.server.items.values():
            self.publisher.slices.record_write(None, each)

    def wait(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    async def publish(self, wanted: PublishedChoice, allocated: Collection[str] | None = ()) -> float | None:
        self.server.allocated = frozenset(allocated or ())
        return await self.publisher.publish(wanted, allocated, NODE)


def refusal(error: ApiError) -> Callable[[str], None]:
    """Return a ``before`` that fails once."""
    left = [error]

    def fail(_: str) -> None:
        if left:
            raise left.pop()

    return fail
