"""An API server for the ResourceSlices of one node, in memory, that checks the rules after each write."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import msgspec

from aliquot.kubernetes.client.client import ObjectSelection
from aliquot.kubernetes.client.codec import ObjectList
from aliquot.kubernetes.client.errors import ApiError, ConflictError, NotFoundError
from aliquot.kubernetes.client.objects import Node, ObjectMeta
from aliquot.kubernetes.dra.agent.resource_objects import ResourceSlice, Spec
from aliquot.kubernetes.dra.agent.slice_changes import SliceContent
from aliquot.kubernetes.dra.agent.slice_publisher import SlicePublisher

POOL, DRIVER = "n1-aliquot", "gpu.aliquot.dev"
NODE = Node(metadata=ObjectMeta(name="n1", uid="node-uid"))


def device(name: str, **more: Any) -> Spec:
    return {"name": name, "attributes": {"profile": {"string": "1g.5gb"}}, **more}


def content(*names: str, pool: str = POOL, counters: Sequence[str] = ()) -> SliceContent:
    return SliceContent(pool, tuple(map(device, names)), tuple({"name": each, "counters": {}} for each in counters))


class Wanted:
    """A publication."""

    def __init__(self, *slices: SliceContent) -> None:
        self.slices = slices


class SliceServer:
    """The slices, as the API server keeps them. ``before`` runs before each write and may raise."""

    def __init__(self) -> None:
        self.items: dict[str, ResourceSlice] = {}
        self.allocated: frozenset[str] = frozenset()
        self.log: list[str] = []
        self.before: Callable[[str], None] = lambda verb: None
        self.holes = 0
        self._version = 0

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
        for each in plain["spec"].get("devices") or ():
            for taint in each.get("taints") or ():
                taint.setdefault("timeAdded", "2026-11-28T00:00:00Z")
        plain["metadata"]["resourceVersion"] = str(self._version)
        made = msgspec.convert(msgspec.json.decode(msgspec.json.encode(plain)), ResourceSlice)
        self.items[made.name] = made
        self.log.append(verb)
        self.check()
        return made

    def check(self) -> None:
        """Check what a scheduler sees at this moment."""
        newest = max(each.generation for each in self.items.values())
        seen = [each for each in self.items.values() if each.generation == newest]
        names = [d["name"] for each in seen for d in each.devices]
        assert len(set(names)) == len(names), "a device is in two slices"
        assert all(len(each.devices) <= 64 for each in seen)
        if any(each.spec["pool"]["resourceSliceCount"] != len(seen) for each in seen):
            self.holes += 1
        else:
            assert self.allocated <= set(names), "an allocated device is not published"

    def devices(self, place: int = 0) -> list[str]:
        """Return the names of a slice's devices, tainted ones with ``!``."""
        found = sorted(self.items.values(), key=lambda each: each.name)[place].devices
        return [d["name"] + "!" * bool(d.get("taints")) for d in found]


class Bed:
    """A publisher with its server and a clock."""

    def __init__(self) -> None:
        self.server = SliceServer()
        self.now = 100.0
        self.restart()

    def restart(self) -> None:
        self.publisher = SlicePublisher(self.server, "n1", DRIVER, lambda: None)  # type: ignore[arg-type]
        self.publisher.clock = lambda: self.now
        for each in self.server.items.values():
            self.publisher.slices.record_write(None, each)

    async def publish(
        self, *wanted: SliceContent, allocated: Collection[str] | None = (), pool: str = POOL
    ) -> float | None:
        self.server.allocated = frozenset(allocated or ())
        taken = None if allocated is None else {(pool, name) for name in allocated}
        return await self.publisher.publish(Wanted(*wanted), taken, NODE)


def refusal(error: ApiError) -> Callable[[str], None]:
    """Return a ``before`` that fails once."""
    left = [error]

    def fail(_: str) -> None:
        if left:
            raise left.pop()

    return fail
