"""The placements of the vGPUs of a GPU in mixed-size mode, as an annotation of its SRIOVGPUDevice.

Only the agent sees the mode and the placements. The controller and the webhook need them to know which sizes fit.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from aliquot.core.model.vgpu_types import VgpuTable, VgpuType
from aliquot.core.planner.vgpu.placement_policies import EqualSizePolicy, MixedSizePolicy, PlacedVgpu, PlacementPolicy
from aliquot.kubernetes.kinds.harvester import SRIOVGPUDevice
from aliquot.kubernetes.kinds.harvester_names import PLACEMENTS_ANNOTATION
from aliquot.kubernetes.virtual_machines.harvester.physical_gpus import PhysicalGpu


class SharedGpu(NamedTuple):
    """A way of sharing a GPU, with its vGPUs."""

    policy: PlacementPolicy
    placed: Sequence[PlacedVgpu]
    """The vGPUs that exist, with their placements; only in mixed-size mode."""
    rest: Sequence[VgpuType]
    """Those that are requested besides, largest first."""

    @property
    def is_mixed(self) -> bool:
        return isinstance(self.policy, MixedSizePolicy)


def placements_annotation(physical_gpu: PhysicalGpu) -> dict[str, str | None]:
    """Return the annotation that describes a GPU, absent in equal-size mode; nothing while no driver shows the GPU."""
    gpu = physical_gpu.gpu
    if gpu is None:
        return {}
    if gpu.virtual is None or not gpu.virtual.mixed_size:
        return {PLACEMENTS_ANNOTATION: None}
    found = sorted((vgpu.function, vgpu.type, vgpu.placement) for vgpu in gpu.vgpus if vgpu.placement is not None)
    return {PLACEMENTS_ANNOTATION: ",".join(f"{function}={type_}@{place}" for function, type_, place in found)}


def time_sliced(
    device: SRIOVGPUDevice | None, table: VgpuTable, types: Sequence[VgpuType], leaving: Collection[str] = ()
) -> SharedGpu:
    """Return how a GPU shares vGPUs of these types, which exist or are requested. The vGPUs of the functions
    ``leaving`` do not count.
    """
    text = None if device is None else device.metadata.annotations.get(PLACEMENTS_ANNOTATION)
    if text is None:
        return SharedGpu(EqualSizePolicy(), (), types)
    placed, rest = [], sorted(types, key=lambda each: -each.fb_mib)
    for entry in filter(None, text.split(",")):
        function, _, vgpu = entry.partition("=")
        name, _, place = vgpu.partition("@")
        found = table.by_name.get(name)
        if found is None or not place.isdecimal() or function in leaving:
            continue
        placed.append(PlacedVgpu(found, int(place)))
        if found in rest:
            rest.remove(found)
    return SharedGpu(MixedSizePolicy(table), placed, rest)
