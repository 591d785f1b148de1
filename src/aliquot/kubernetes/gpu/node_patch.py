"""Changing a node's labels, annotations and cordon without overwriting what somebody sets at the same moment."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from aliquot.foundation.backoff import Backoff
from aliquot.kubernetes.client.errors import ConflictError
from aliquot.kubernetes.client.objects import KubeObject, Node
from aliquot.kubernetes.gpu.gpu_operands import NodeMarks, NodePatch

K = TypeVar("K", bound=KubeObject)

_ATTEMPTS = 12
_BACKOFF = Backoff(first=0.01, longest=0.5, jitter=(0.0, 1.0))


class NodeApi(Protocol):
    """What is needed of the API server here."""

    async def get(self, kind: type[K], name: str, namespace: str | None = None) -> K: ...

    async def patch(self, kind: type[K], name: str, body: dict[str, Any]) -> K: ...


def node_marks(node: Node) -> NodeMarks:
    """What of a node pausing reads and writes."""
    return NodeMarks(node.metadata.labels, node.metadata.annotations, node.spec.unschedulable)


async def change_node(api: NodeApi, name: str, change: Callable[[NodeMarks], NodePatch]) -> Node:
    """Reads the node, asks ``change`` what to do about it and sends that, tied to what was read: if somebody changed
    the node in between, it is read and ``change`` is asked again. The node as it is then. Raises ApiError;
    ConflictError where the node did not hold still for several attempts.
    """
    attempt = 0
    while True:
        node = await api.get(Node, name)
        patch = change(node_marks(node))
        if not patch:
            return node
        try:
            return await api.patch(Node, name, patch.body(node.metadata.resource_version))
        except ConflictError:
            attempt += 1
            if attempt == _ATTEMPTS:
                raise
            # Soon again: a node changes seldom, and whoever writes all the time is not waited out but overtaken.
            await asyncio.sleep(_BACKOFF.pause(attempt))
