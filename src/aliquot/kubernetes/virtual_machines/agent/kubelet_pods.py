"""Kubelet's word on which pods have which devices."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from aliquot.kubernetes.node_agent.pod_holders import PodDeviceUse
from aliquot.kubernetes.virtual_machines.agent import launcher_devices as launchers
from aliquot.kubernetes.virtual_machines.agent.reconciler import Uses

if TYPE_CHECKING:
    from aliquot.kubernetes.device_plugin import pod_resources


def uses(kubelet_dir: str) -> Uses | None:
    """Who has which device; None where there is no kubelet."""
    query_devices = pod_devices(kubelet_dir)
    if query_devices is None:
        return None

    async def query() -> Sequence[PodDeviceUse]:
        return [PodDeviceUse(u.namespace, u.pod, u.container, u.devices, u.claim) for u in await query_devices()]

    return query


def pod_devices(kubelet_dir: str) -> launchers.Uses | None:
    """The same with the resources' names."""
    if not kubelet_dir:
        return None
    socket = os.path.join(kubelet_dir, "pod-resources", "kubelet.sock")

    async def query() -> Sequence[pod_resources.PodResourceUse]:
        from aliquot.kubernetes.device_plugin import pod_resources

        return await pod_resources.list_uses(socket)

    return query
