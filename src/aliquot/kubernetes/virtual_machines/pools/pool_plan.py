"""The plan of a round of pools, to which each pool adds, and the writes that it consists of."""

from __future__ import annotations

from typing import Any

import msgspec

from aliquot.kubernetes.client.object_base import KubeObject
from aliquot.kubernetes.kinds.harvester import VGPUDevice
from aliquot.kubernetes.kinds.vgpu_pools import POOL_LABEL
from aliquot.kubernetes.virtual_machines.harvester.admission.snapshot import parent_gpu_name
from aliquot.kubernetes.virtual_machines.pools.gpu_room import PoolRoom, gpu_room
from aliquot.kubernetes.virtual_machines.pools.pool_view import PoolView

JSON = dict[str, Any]


class PoolChange(msgspec.Struct, frozen=True):
    """A merge patch of an object. ``status`` True patches only the status."""

    kind: type[KubeObject]
    name: str
    body: JSON
    why: str
    status: bool = False

    @property
    def withdraws(self) -> bool:
        """True if it takes a vGPU away."""
        return self.kind is VGPUDevice and self.body.get("spec", {}).get("enabled") is False


def change(target: KubeObject, body: JSON, why: str) -> PoolChange:
    """Return a write that fails if the object changed since it was read."""
    version = {"resourceVersion": target.metadata.resource_version}
    return PoolChange(type(target), target.name, {**body, "metadata": {**body.get("metadata", {}), **version}}, why)


class PoolPlan:
    """The plan of a round, to which each pool adds."""

    def __init__(self, view: PoolView, pools: frozenset[str]) -> None:
        self.view, self.pools = view, pools
        self.taken: set[str] = set()
        self.wanted: set[str] = set()
        """MigConfigurations that request a profile that a pool still lacks."""
        self._types: dict[str, list[str]] = {}

    def types_on(self, gpu: str) -> list[str]:
        """Return the types of the vGPUs that a GPU has or will have. A pool adds its own."""
        if gpu not in self._types:
            self._types[gpu] = self.view.occupying_types(gpu)
        return self._types[gpu]

    def room(self, gpu: str, type_name: str) -> PoolRoom:
        """Return the room of a GPU beside what is planned."""
        return gpu_room(self.view, self.view.snapshot.gpus[gpu], type_name, self.types_on(gpu))

    def may_take(self, device: VGPUDevice, pool: str) -> bool:
        """Report whether a device is free for a pool: no other one has it."""
        owner = device.metadata.labels.get(POOL_LABEL, pool)
        return device.name not in self.taken and (owner == pool or owner not in self.pools)

    def drop(self, device: VGPUDevice) -> None:
        """Count a vGPU no more that this round disables."""
        self.types_on(parent_gpu_name(device)).remove(device.spec.type_name)
        self.view.note_disabled(device)
