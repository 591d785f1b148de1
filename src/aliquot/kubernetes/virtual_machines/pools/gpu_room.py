"""The room of a GPU for vGPUs of one type, from the cluster's objects alone.

The node's agent knows more: which types a free device can have now (``status.availableTypes``). Both must agree before
a device is enabled. This module decides how many more fit beside all that is enabled or about to be enabled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from aliquot.core.model.vgpu_types import VgpuTable, VgpuType
from aliquot.core.planner.vgpu.placement_policies import MigBackedPolicy
from aliquot.errors import Message
from aliquot.kubernetes.kinds.harvester import (
    MigConfiguration,
    MigProfileStatus,
    SRIOVGPUDevice,
    VGPUDevice,
    passes_through,
    skips_mig,
)
from aliquot.kubernetes.kinds.harvester_names import WITHOUT_PCIDEVICES
from aliquot.kubernetes.virtual_machines.harvester.admission.vgpu_capacity import table_of
from aliquot.kubernetes.virtual_machines.harvester.foreign_nodes import DEVICES_ANNOTATION
from aliquot.kubernetes.virtual_machines.harvester.placements import SharedGpu, time_sliced
from aliquot.kubernetes.virtual_machines.pools.pool_view import PoolView, leaves, not_ready

replace = msgspec.structs.replace


class PoolRoom(msgspec.Struct, frozen=True):
    """The room of a GPU for a type."""

    gpu: SRIOVGPUDevice
    type: VgpuType | None = None
    """None if the board does not have the type."""
    room: int = 0
    """How many more vGPUs fit, now or once ``awaited`` has come."""
    free: tuple[VGPUDevice, ...] = ()
    """Devices that can be enabled with the type now, by name."""
    enable: bool = False
    """Whether the GPU itself must be enabled first."""
    skip_mig: bool = False
    """Whether the GPU must be kept from MIG mode, because the type is time-sliced."""
    layout: MigConfiguration | None = None
    """The MigConfiguration that must request GPU instances for more than ``inside``."""
    inside: int = 0
    """How many of ``room`` fit into GPU instances that exist or are being created."""
    awaited: str = ""
    """What the GPU's agent still has to do before ``free`` is complete, in one clause."""
    refusal: Message | str = ""
    """Why nothing fits: a clause about the GPU, or a whole sentence with the next command."""

    @property
    def why(self) -> Message:
        """The reason why nothing fits, with the next command if there is one."""
        return self.refusal if isinstance(self.refusal, Message) else Message(f"{self.gpu.name} {self.refusal}")


def gpu_room(view: PoolView, gpu: SRIOVGPUDevice, type_name: str, planned: Iterable[str]) -> PoolRoom:
    """Return the room of a GPU.

    ``planned`` are the types of the vGPUs that are enabled on it or will be.
    """
    snapshot = view.snapshot
    function = snapshot.functions.get(gpu.name)
    table = table_of(function, type_name) if function is not None else None
    if table is None:
        return PoolRoom(gpu, refusal=f"has no type {type_name}")
    wanted = table.by_name[type_name]
    if gpu.spec.node_name not in snapshot.nodes:
        return PoolRoom(gpu, wanted, refusal=f"node {gpu.spec.node_name} is gone")
    if gpu.spec.node_name in view.silent:
        return PoolRoom(gpu, wanted, refusal=_silence(view, gpu.spec.node_name))
    if passed := _passthrough(view, gpu.name):
        return PoolRoom(gpu, wanted, refusal=passed)
    beside = [found for found in (table.by_name.get(name) for name in planned) if found is not None]
    if wanted.mig_backed:
        if skips_mig(gpu):
            return PoolRoom(gpu, wanted, refusal="skips MIG")
        return _mig_backed_room(view, gpu, table, wanted, beside)
    if any(each.mig_backed for each in beside):
        return PoolRoom(gpu, wanted, refusal="has MIG-backed vGPUs")
    mig = snapshot.migs.get(gpu.name)
    if mig is not None and not skips_mig(gpu) and _is_prepared(mig):
        return PoolRoom(gpu, wanted, refusal=_preparation(mig))
    if mig is not None and not skips_mig(gpu) and (beside or mig.spec.enabled or _has_instances(mig)):
        return PoolRoom(gpu, wanted, refusal="is partitioned with MIG")
    leaving = {device.spec.address for device in view.devices_on(gpu.name) if leaves(device)}
    shared = time_sliced(gpu, table, beside, leaving)
    full = "has no free placement of this size" if shared.is_mixed else "is full or has other sizes"
    refusal = view.remaining_vgpu(gpu.name) or full
    room = PoolRoom(gpu, wanted, _fits(shared, wanted), refusal=refusal)
    return _complete(view, replace(room, skip_mig=table.mig_family is not None and not skips_mig(gpu)))


def _passthrough(view: PoolView, gpu: str) -> Message | str:
    """Return who has a GPU as a whole, by a claim of Harvester or Kubernetes; "" if it is free for vGPUs."""
    return (
        "is passed through" if passes_through(view.snapshot.claims.get(gpu)) else view.users.describe_claim(gpu) or ""
    )


def _mig_backed_room(
    view: PoolView, gpu: SRIOVGPUDevice, table: VgpuTable, wanted: VgpuType, beside: list[VgpuType]
) -> PoolRoom:
    mig = view.snapshot.migs.get(gpu.name)
    if any(not each.mig_backed for each in beside):
        return PoolRoom(gpu, wanted, refusal="has time-sliced vGPUs")
    if mig is None or not mig.status.profile_status:
        return _complete(
            view, PoolRoom(gpu, wanted, 0 if beside else wanted.max, refusal="has no MigConfiguration yet")
        )
    row = _row(mig, wanted)
    if row is None:
        return PoolRoom(gpu, wanted, refusal=f"has no MIG profile {wanted.profile}")
    if mig.spec.enabled:
        return _room_in_instances(view, gpu, mig, table, wanted, beside)
    if _has_instances(mig):
        return PoolRoom(gpu, wanted, refusal="destroys its GPU instances")
    if _is_prepared(mig):
        return PoolRoom(gpu, wanted, refusal=_preparation(mig))
    if mig.status.differences:
        return PoolRoom(gpu, wanted, refusal="has GPU instances that were not created through its MigConfiguration")
    room = min(row.total * max(1, wanted.per_instance), wanted.max)
    return _complete(view, PoolRoom(gpu, wanted, 0 if beside else room, layout=mig, refusal="waits for its layout"))


def _room_in_instances(
    view: PoolView,
    gpu: SRIOVGPUDevice,
    mig: MigConfiguration,
    table: VgpuTable,
    wanted: VgpuType,
    beside: list[VgpuType],
) -> PoolRoom:
    """Return the room in the GPU instances of an enabled layout, including those that are still being created."""
    rows, coming = mig.status.profile_status, view.awaits_instances(mig)
    instances = [(int(i), p.id) for p in rows for i in (p.instances or ()) if i.isdecimal()]
    if coming:
        having = Counter(profile for _, profile in instances)
        missing = [each.id for each in mig.spec.profile_spec for _ in range(each.requested - having[each.id])]
        instances += [(-number, profile) for number, profile in enumerate(missing, 1)]
    profiles = {p.name.removeprefix("MIG "): p.id for p in rows}
    inside = _fits(SharedGpu(MigBackedPolicy(table, instances, profiles), (), beside), wanted)
    row = _row(mig, wanted)
    more = row.available * max(1, wanted.per_instance) if row is not None and view.is_settled(mig) else 0
    refusal = f"has no free GPU instance {wanted.profile}, and no place for one"
    room = PoolRoom(gpu, wanted, inside + more, layout=mig if more else None, inside=inside, refusal=refusal)
    return _complete(view, replace(room, awaited="creates GPU instances" if coming else ""))


def _silence(view: PoolView, node: str) -> Message:
    """Return why no agent of ours does anything on a node."""
    reports = DEVICES_ANNOTATION in view.snapshot.nodes[node].metadata.annotations
    if node in view.foreign and reports:
        return Message(f"pcidevices serves node {node}", f"kubectl label node {node} {WITHOUT_PCIDEVICES}=true")
    step = f"kubectl get pods -A -l app=aliquot-devices -o wide --field-selector spec.nodeName={node}"
    sentence = f"the agent of node {node} does not answer" if reports else f"no agent of Aliquot reports on node {node}"
    return Message(sentence, step)


def _is_prepared(mig: MigConfiguration) -> bool:
    """Report whether a user wrote numbers into a layout and has not enabled it yet."""
    return not mig.spec.enabled and any(each.requested > 0 for each in mig.spec.profile_spec)


def _preparation(mig: MigConfiguration) -> Message:
    text = f"{mig.name} has numbers in its MigConfiguration, which is disabled: enable it, or set them to 0"
    return Message(text, f"kubectl edit migconfiguration {mig.name}")


def _has_instances(mig: MigConfiguration) -> bool:
    return any(each.instances for each in mig.status.profile_status)


def _row(mig: MigConfiguration, wanted: VgpuType) -> MigProfileStatus | None:
    return next((p for p in mig.status.profile_status if p.name.removeprefix("MIG ") == wanted.profile), None)


def _complete(view: PoolView, room: PoolRoom) -> PoolRoom:
    """Add the free devices, what is awaited, and why an enabled GPU has fewer than would fit."""
    gpu, wanted = room.gpu, room.type
    assert wanted is not None
    free = tuple(
        device
        for device in view.devices_on(gpu.name)
        if not device.spec.enabled and wanted.name in device.status.available_types
    )
    awaited = room.awaited or (view.awaited(gpu) if gpu.spec.enabled else "")
    room = replace(room, free=free, awaited=awaited, enable=not gpu.spec.enabled)
    if room.room and not (free or awaited or room.enable or room.skip_mig or room.layout is not None):
        message = not_ready(gpu)
        return replace(
            room,
            room=0,
            refusal=f"is not ready ({message})" if message else "has a driver that does not offer the type now",
        )
    return replace(room, refusal="") if room.room else room


def _fits(shared: SharedGpu, wanted: VgpuType) -> int:
    """Return how many more of a type the driver accepts beside others."""
    policy, state = shared.policy, shared.policy.initial_state(shared.placed)
    for each in shared.rest:
        found = policy.place(state, each)
        if found is None:
            return 0
        state = found[0]
    count = 0
    while (found := policy.place(state, wanted)) is not None:
        state, count = found[0], count + 1
    return count
