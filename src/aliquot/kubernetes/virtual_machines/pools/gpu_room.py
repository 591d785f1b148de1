"""The room of a GPU for vGPUs of one type, from the cluster's objects alone.

The node's agent knows more: which types a free device can have now (``status.availableTypes``). Both must agree before
a device is enabled. This module decides how many more fit beside all that is enabled or about to be enabled.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from aliquot.core.model.vgpu_types import VgpuTable, VgpuType
from aliquot.core.planner.vgpu.placement_policies import EqualSizePolicy, MigBackedPolicy, PlacementPolicy
from aliquot.kubernetes.kinds.harvester import (
    MigConfiguration,
    MigProfileStatus,
    SRIOVGPUDevice,
    VGPUDevice,
    passes_through,
)
from aliquot.kubernetes.kinds.harvester_names import SKIP_MIG_ANNOTATION, SYNCED
from aliquot.kubernetes.virtual_machines.harvester.admission.snapshot import AdmissionSnapshot
from aliquot.kubernetes.virtual_machines.harvester.admission.vgpu_capacity import table_of
from aliquot.kubernetes.virtual_machines.harvester.reasons import PENDING


class PoolRoom(msgspec.Struct, frozen=True):
    """The room of a GPU for a type."""

    gpu: SRIOVGPUDevice
    type: VgpuType | None = None
    """None if the board does not have the type."""
    room: int = 0
    """How many more vGPUs fit."""
    free: tuple[VGPUDevice, ...] = ()
    """Devices that can be enabled with the type now, by name."""
    enable: bool = False
    """Whether the GPU itself must be enabled first."""
    skip_mig: bool = False
    """Whether the GPU must be kept from MIG mode, because the type is time-sliced."""
    layout: MigConfiguration | None = None
    """The MigConfiguration that must request more instances for more than ``inside``."""
    inside: int = 0
    """How many of ``room`` fit into GPU instances that exist."""
    why: str = ""
    """Why nothing fits, in one clause."""


def gpu_room(snapshot: AdmissionSnapshot, gpu: SRIOVGPUDevice, type_name: str, planned: Iterable[str]) -> PoolRoom:
    """Return the room of a GPU.

    ``planned`` are the types of the vGPUs that are enabled on it or will be.
    """
    function = snapshot.functions.get(gpu.name)
    table = table_of(function, type_name) if function is not None else None
    if table is None:
        return PoolRoom(gpu, why=f"has no type {type_name}")
    wanted = table.by_name[type_name]
    if gpu.spec.node_name not in snapshot.nodes:
        return PoolRoom(gpu, wanted, why=f"node {gpu.spec.node_name} is gone")
    if passes_through(snapshot.claims.get(gpu.name)):
        return PoolRoom(gpu, wanted, why="is passed through")
    beside = [found for found in (table.by_name.get(name) for name in planned) if found is not None]
    skips = gpu.metadata.annotations.get(SKIP_MIG_ANNOTATION) == "true"
    if wanted.mig_backed:
        if skips:
            return PoolRoom(gpu, wanted, why="skips MIG")
        return _mig_backed_room(snapshot, gpu, table, wanted, beside)
    if any(each.mig_backed for each in beside):
        return PoolRoom(gpu, wanted, why="has MIG-backed vGPUs")
    mig = snapshot.migs.get(gpu.name)
    partitioned = mig is not None and (beside or any(each.instances for each in mig.status.profile_status))
    if partitioned and not skips:
        return PoolRoom(gpu, wanted, why="is partitioned with MIG")
    room = _fits(EqualSizePolicy(), beside, wanted)
    return _result(
        snapshot,
        gpu,
        wanted,
        room,
        skip_mig=table.mig_family is not None and not skips,
        why="is full or has other sizes",
    )


def _mig_backed_room(
    snapshot: AdmissionSnapshot, gpu: SRIOVGPUDevice, table: VgpuTable, wanted: VgpuType, beside: list[VgpuType]
) -> PoolRoom:
    mig = snapshot.migs.get(gpu.name)
    if any(not each.mig_backed for each in beside):
        return PoolRoom(gpu, wanted, why="has time-sliced vGPUs")
    if mig is None:
        return _result(snapshot, gpu, wanted, 0 if beside else wanted.max, why="has no MigConfiguration yet")
    row = _row(mig, wanted)
    if row is None:
        return PoolRoom(gpu, wanted, why=f"has no MIG profile {wanted.profile}")
    if not mig.spec.enabled and not any(each.instances for each in mig.status.profile_status):
        room = min(row.total * max(1, wanted.per_instance), wanted.max)
        return _result(snapshot, gpu, wanted, 0 if beside else room, layout=mig, why="waits for its layout")
    instances = [(int(i), p.id) for p in mig.status.profile_status for i in (p.instances or ()) if i.isdecimal()]
    profiles = {p.name.removeprefix("MIG "): p.id for p in mig.status.profile_status}
    each, observed = max(1, wanted.per_instance), mig.status.observed_generation == mig.metadata.generation
    inside = _fits(MigBackedPolicy(table, instances, profiles), beside, wanted)
    inside += 0 if observed else each * _coming_instances(mig, row)
    grows = observed and mig.spec.enabled and mig.status.state == SYNCED
    room = inside + (each * row.available if grows else 0)
    why = f"has no free GPU instance {wanted.profile}, and no place for one"
    found = _result(snapshot, gpu, wanted, room, layout=mig if room > inside else None, why=why)
    return msgspec.structs.replace(found, inside=inside)


def _coming_instances(mig: MigConfiguration, row: MigProfileStatus) -> int:
    """Return how many instances of a profile are requested and were not created yet."""
    requested = sum(each.requested for each in mig.spec.profile_spec if each.id == row.id)
    return max(0, requested - len(row.instances or ())) if mig.spec.enabled else 0


def _row(mig: MigConfiguration, wanted: VgpuType) -> MigProfileStatus | None:
    return next((p for p in mig.status.profile_status if p.name.removeprefix("MIG ") == wanted.profile), None)


def _result(
    snapshot: AdmissionSnapshot,
    gpu: SRIOVGPUDevice,
    wanted: VgpuType,
    room: int,
    *,
    skip_mig: bool = False,
    layout: MigConfiguration | None = None,
    why: str = "",
) -> PoolRoom:
    free = tuple(
        sorted(
            (d for d in snapshot.vgpus_of(gpu.name) if not d.spec.enabled and wanted.name in d.status.available_types),
            key=lambda device: device.name,
        )
    )
    if room and not free and gpu.spec.enabled and layout is None and (stuck := _stuck(snapshot, gpu)):
        room, why = 0, stuck
    return PoolRoom(gpu, wanted, room, free, not gpu.spec.enabled, skip_mig, layout, why="" if room else why)


def _stuck(snapshot: AdmissionSnapshot, gpu: SRIOVGPUDevice) -> str:
    """Return why an enabled GPU offers no device with the type, although it fits; "" if its devices are to come."""
    ready = next((c for c in gpu.status.conditions if c.type == "Ready"), None)
    if ready is not None and ready.status != "True" and ready.reason != PENDING:
        return f"is not ready ({ready.message})"
    if any(device.status.available_types for device in snapshot.vgpus_of(gpu.name)):
        return "has a driver that does not offer the type now"
    return ""


def _fits(policy: PlacementPolicy, beside: list[VgpuType], wanted: VgpuType) -> int:
    """Return how many more of a type the driver accepts beside others."""
    state = policy.initial_state([])
    for each in beside:
        found = policy.place(state, each)
        if found is None:
            return 0
        state = found[0]
    count = 0
    while (found := policy.place(state, wanted)) is not None:
        state, count = found[0], count + 1
    return count
