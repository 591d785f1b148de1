"""Queries of kubelet for the devices of pods."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from aliquot.kubernetes.node_agent.pod_holders import PodDeviceUse, Uses

if TYPE_CHECKING:
    from aliquot.kubernetes.device_plugin.pod_resources import PodResourceUse

ResourceUses = Callable[[], Awaitable["Sequence[PodResourceUse]"]]


def device_uses(kubelet_dir: str, prefix: str = "") -> Uses | None:
    """Return a query for pods with devices of resources with this ``prefix`` or of claims; None without a kubelet."""
    query_resources = resource_uses(kubelet_dir)
    if query_resources is None:
        return None

    async def query() -> Sequence[PodDeviceUse]:
        found = await query_resources()
        ours = [u for u in found if u.resource.startswith(prefix) or u.claim is not None]
        return [PodDeviceUse(u.namespace, u.pod, u.container, u.devices, u.claim) for u in ours]

    return query


def resource_uses(kubelet_dir: str) -> ResourceUses | None:
    """Return a query for all pods with devices, with resource names; None without a kubelet."""
    if not kubelet_dir:
        return None
    socket = os.path.join(kubelet_dir, "pod-resources", "kubelet.sock")

    async def query() -> Sequence[PodResourceUse]:
        from aliquot.kubernetes.device_plugin import pod_resources

        return await pod_resources.list_uses(socket)

    return query
