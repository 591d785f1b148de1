"""Changes of a node's labels, annotations and cordon that do not overwrite concurrent changes."""

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
    """The API calls that a node patch needs."""

    async def get(self, kind: type[K], name: str, namespace: str | None = None) -> K: ...

    async def patch(self, kind: type[K], name: str, body: dict[str, Any]) -> K: ...


def node_marks(node: Node) -> NodeMarks:
    """Return the parts of a node that a pause reads and writes."""
    return NodeMarks(node.metadata.labels, node.metadata.annotations, node.spec.unschedulable)


async def change_node(api: NodeApi, name: str, change: Callable[[NodeMarks], NodePatch]) -> Node:
    """Read the node, send the patch that ``change`` returns for it, and return the resulting node.

    The patch carries the resource version that was read. If the node changed in between, both steps are repeated.
    Raises ApiError, and ConflictError if the node changed in between in all attempts.
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
            # Short back-off: a node changes seldom, and waiting does not help against a constant writer.
            await asyncio.sleep(_BACKOFF.pause(attempt))
