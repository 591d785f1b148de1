"""Pods of a cluster in memory, which do what a real API server does not do on demand: be unavailable, hang, end
slowly.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from aliquot.kubernetes.client.codec import ObjectList
from aliquot.kubernetes.client.errors import ApiError, ConflictError, NotFoundError, ThrottledError
from aliquot.kubernetes.client.object_base import KubeObject, ObjectMeta, OwnerReference
from aliquot.kubernetes.client.objects import Pod
from aliquot.kubernetes.client.pods import PodSpec, PodStatus
from aliquot.kubernetes.gpu.node_pods import K

NODE = "gpu-1"


def pod(
    name: str,
    *,
    namespace: str = "team",
    node: str = NODE,
    labels: dict[str, str] | None = None,
    owner: str = "",
    selector: dict[str, str] | None = None,
    phase: str = "Running",
) -> Pod:
    """Build a running pod. ``owner`` is ``Kind/name`` of its controller."""
    kind, _, owner_name = owner.partition("/")
    owners = (OwnerReference(kind, owner_name, controller=True),) if owner else ()
    annotations = {"kubernetes.io/config.mirror": "x"} if kind == "Node" else {}
    metadata = ObjectMeta(
        name, namespace, f"uid-{name}", labels=labels or {}, annotations=annotations, owner_references=owners
    )
    return Pod(metadata, PodSpec(node, selector or {}), PodStatus(phase))


class Pods:
    """An implementation of the Protocols. ``ends_s`` is how long a pod takes to end (None: it never does without
    force). ``budget`` contains pods that may not be evicted. The next calls raise the ``failing`` errors, one each.
    """

    def __init__(self, *pods: Pod, ends_s: float | None = 0.0) -> None:
        self.pods = {p.key: p for p in pods}
        self.ends_s = ends_s
        self.budget: set[str] = set()
        self.failing: list[ApiError] = []
        self.hanging = False
        self.calls: list[str] = []
        self.again: dict[str, Pod] = {}
        self.cache: tuple[Pod, ...] | None = None

    @property
    def old(self) -> tuple[Pod, ...]:
        """Return a cached list: ``cache`` if a test sets it, else the current state."""
        return tuple(self.pods.values()) if self.cache is None else self.cache

    async def _call(self, text: str) -> None:
        self.calls.append(text)
        if self.hanging:
            await asyncio.Event().wait()
        await asyncio.sleep(0)
        if self.failing:
            raise self.failing.pop(0)

    async def list(self, kind: type[K], namespace: str | None = None, *, fields: str | None = None) -> tuple[K, ...]:
        await self._call("list")
        assert namespace == "*"
        assert fields == f"spec.nodeName={NODE}"
        return tuple(p for p in self.pods.values() if p.spec.node_name == NODE and isinstance(p, kind))

    def selection(self, kind: type[Pod], namespace: str | None = None, *, fields: str | None = None) -> Any:
        return namespace, fields

    async def snapshot(self, kind: type[K], where: Any, version: str | None = None) -> ObjectList[K]:
        namespace, fields = where
        if version is None:
            return ObjectList(items=await self.list(kind, namespace, fields=fields))
        await self._call("list 0")
        return ObjectList(items=tuple(p for p in self.old if isinstance(p, kind)))

    async def get(self, kind: type[K], name: str, namespace: str | None = None) -> K:
        await self._call(f"get {name}")
        found = self.pods.get((namespace or "", name))
        if found is None:
            raise NotFoundError(f"pods {name} not found", status=404)
        assert isinstance(found, kind)
        return found

    async def delete(
        self,
        kind: type[KubeObject],
        name: str,
        namespace: str | None = None,
        *,
        grace_s: int | None = None,
        uid: str | None = None,
    ) -> None:
        await self._call(f"delete {name} {grace_s}" if grace_s is not None else f"delete {name}")
        self._end(await self._known(name, namespace, uid), 0.0 if grace_s == 0 else self.ends_s)

    async def evict(
        self, name: str, namespace: str | None = None, *, grace_s: int | None = None, uid: str | None = None
    ) -> None:
        await self._call(f"evict {name}")
        found = await self._known(name, namespace, uid)
        if name in self.budget:
            raise ThrottledError(
                f"pod {namespace}/{name} cannot be evicted now: it would violate the pod's disruption budget",
                details=("The disruption budget web needs 2 healthy pods and has 2 currently",),
                status=429,
            )
        self._end(found, self.ends_s)

    async def _known(self, name: str, namespace: str | None, uid: str | None) -> Pod:
        found = self.pods.get((namespace or "", name))
        if found is None:
            raise NotFoundError(f"pods {name} not found", status=404)
        if uid is not None and uid != found.metadata.uid:
            raise ConflictError(f"uid in precondition: {uid}", status=409)
        return found

    def _end(self, found: Pod, seconds: float | None) -> None:
        metadata = msgspec.structs.replace(found.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
        self.pods[found.key] = msgspec.structs.replace(found, metadata=metadata)
        if seconds is None:
            return
        asyncio.get_running_loop().call_later(seconds, self._forget, found)

    def _forget(self, found: Pod) -> None:
        if self.pods.get(found.key) is not None and self.pods[found.key].metadata.uid == found.metadata.uid:
            del self.pods[found.key]
            successor: Any = self.again.get(found.metadata.name)
            if successor is not None:
                self.pods[successor.key] = successor
