"""The kind ``VGPUPool`` of ``aliquot.dev/v1alpha1``: a number of vGPUs of one type, on a GPU, a node or the cluster."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Final

import msgspec

from aliquot.kubernetes.client.object_base import ApiStruct, KubeObject, ResourceType
from aliquot.kubernetes.kinds.harvester import HarvesterStatus, VGPUDevice

GROUP: Final = "aliquot.dev"
VERSION: Final = "v1alpha1"
POOL_LABEL: Final = "aliquot.dev/pool"
"""On a VGPUDevice: the pool to which it belongs."""
POOL_FINALIZER: Final = "aliquot.dev/pool"


class VGPUPoolSpec(ApiStruct, frozen=True, omit_defaults=False):
    """The request of a pool. Without a place it is for the whole cluster."""

    type_name: str = msgspec.field(name="vGPUTypeName", default="")
    """The full name of a vGPU type (``NVIDIA A2-4Q``)."""
    count: int = 0
    gpu: str = msgspec.field(name="sriovGPUDevice", default="")
    """The name of a GPU's SRIOVGPUDevice."""
    node_name: str = ""
    node_selector: dict[str, str] = msgspec.field(default_factory=dict)


class VGPUPoolStatus(HarvesterStatus, frozen=True):
    ready: int | msgspec.UnsetType = msgspec.UNSET
    """The number of its vGPUs that exist."""
    in_use: int | msgspec.UnsetType = msgspec.UNSET
    """The number of its vGPUs that VMs use or may use."""
    devices: tuple[str, ...] = ()
    """The names of its VGPUDevices."""


class VGPUPool(KubeObject, frozen=True):
    """A number of vGPUs of one type."""

    TYPE: ClassVar[ResourceType] = ResourceType(GROUP, VERSION, "vgpupools", "VGPUPool", namespaced=False)

    spec: VGPUPoolSpec = VGPUPoolSpec()
    status: VGPUPoolStatus = VGPUPoolStatus()


def requesting_pool(devices: Iterable[VGPUDevice]) -> str:
    """Return the first pool that requests one of these devices, "" if none does: it enables again what is disabled."""
    pools = {each.metadata.labels.get(POOL_LABEL, "") for each in devices if each.spec.enabled}
    return min(pools - {""}, default="")
