"""The plan for devices of VMs: beside the vGPUs of other claims and of other programs. Pure.

A vGPU of an earlier claim stays until it is in the way. The plan destroys it then, unless a VM has it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from aliquot.core.model.desired import DesiredGpu, DesiredInstance, DesiredVgpu
from aliquot.core.model.inventory import Gpu, GpuInstance, Holder, Inventory, Vgpu
from aliquot.core.planner.blockers import holders_next_step
from aliquot.core.planner.placement_table import compiled_table
from aliquot.core.planner.restore_point import instance_requests
from aliquot.errors import BlockedError
from aliquot.kubernetes.dra.agent.claim_types import (
    AllocatedClaim,
    AllocatedDevice,
    DeviceLocation,
    ForeignInstanceError,
    UnknownClaimedDeviceError,
)
from aliquot.kubernetes.dra.agent.device_targets import DeviceTarget, VmTarget
from aliquot.kubernetes.dra.model.vm_devices import is_own_vgpu, passed_through_functions, vgpu_uuid
from aliquot.node.holders.prepared_claims import PASSED_THROUGH, ClaimRecords

NO_OWNER = ("process", "others")
"""Kinds of holders that do not own a whole GPU: a monitoring program runs beside every owner."""


def vm_target(
    inventory: Inventory, claim: AllocatedClaim, device: AllocatedDevice, gpu: Gpu, location: DeviceLocation
) -> VmTarget:
    """Return the target of a device for a VM. Raises UnknownClaimedDeviceError."""
    if location.vm == PASSED_THROUGH:
        return VmTarget(device, gpu)
    table = inventory.vgpu_table(gpu)
    vgpu = table.by_name.get(location.vm) if table is not None else None
    if vgpu is None or vgpu.id is None:
        raise UnknownClaimedDeviceError(
            f"{claim.reference} has device {device.device!r}, but GPU {gpu.pci} ({gpu.product}) has no {location.vm}",
            next_step=f"aliquot vgpu types {gpu.pci}",
        )
    uuid = vgpu_uuid(gpu, device.device)
    if location.profile is None:
        return VmTarget(device, gpu, vgpu=vgpu, uuid=uuid)
    profile = compiled_table(inventory.family(gpu)).family.by_name[location.profile]
    return VmTarget(device, gpu, profile.id, profile.name, profile.placement(location.start), vgpu=vgpu, uuid=uuid)


def must_wait(target: DeviceTarget, planned: Sequence[DeviceTarget]) -> bool:
    """Report whether a vGPU must wait until those of other claims exist.

    The driver chooses the GPU instance of a new vGPU among all of its profile, so one at a time gets its own.
    """
    backed = isinstance(target, VmTarget) and target.place
    return bool(backed) and any(other.profile_id == target.profile_id for other in planned)


class VmGpu:
    """A GPU that serves VMs.

    ``own`` are the holders of the claim that is planned. ``created`` are the GPU instances that were created for
    claims.
    """

    def __init__(
        self, inventory: Inventory, gpu: Gpu, records: ClaimRecords, own: set[Holder], created: Collection[GpuInstance]
    ) -> None:
        self._inventory = inventory
        self._gpu = gpu
        self._own = own
        self._created = created
        devices = (device for claim in records.claims for device in claim.devices)
        self._claimed = {device.uuid for device in devices if device.gpu == gpu.identity and device.vm}

    def desired(self, targets: Sequence[VmTarget]) -> DesiredGpu:
        """Return the GPU with the targets and everything that stays beside them. Raises BlockedError."""
        gpu = self._gpu
        wanted = {target.uuid: target for target in targets}
        kept = [vgpu for vgpu in gpu.vgpus if self._stays(vgpu) and vgpu.uuid not in wanted]
        if targets[0].whole:
            self._refuse_held(targets[0], gpu.holders)
            self._refuse_foreign(targets[0], kept, gpu.instances)
            return DesiredGpu(gpu.pci, None, None, vgpus=(), passthrough=True)
        if not any(vgpu.held for vgpu in gpu.vgpus):  # beside one, the GPU's clients may be the driver's own
            self._refuse_held(targets[0], [each for each in gpu.holders if each.kind not in NO_OWNER])
        for vgpu in gpu.vgpus:
            if vgpu.uuid in wanted:
                self._refuse_held(wanted[vgpu.uuid], vgpu.holders)
        vgpus = (*(_present(vgpu) for vgpu in kept), *(_new(target) for target in targets))
        if not targets[0].place:
            self._refuse_foreign(targets[0], (), gpu.instances)
            return DesiredGpu(gpu.pci, False if gpu.mig.capable else None, (), vgpus=vgpus)
        return DesiredGpu(gpu.pci, True, self._instances(targets, kept), vgpus=vgpus)

    def _stays(self, vgpu: Vgpu) -> bool:
        return vgpu.held or vgpu.uuid in self._claimed or not is_own_vgpu(self._inventory, self._gpu, vgpu)

    def _instances(self, targets: Sequence[VmTarget], kept: Sequence[Vgpu]) -> tuple[DesiredInstance, ...]:
        """Return the GPU instances: those under vGPUs that stay, and the targets' own."""
        gpu, table = self._gpu, compiled_table(self._inventory.family(self._gpu))
        below = {vgpu.gpu_instance for vgpu in kept}
        requests = instance_requests(gpu, self._inventory.places_compute_instances)
        stay = [request for each, request in zip(gpu.instances, requests, strict=True) if each.id in below]
        places = {target.place for target in targets}
        others = [each for each in gpu.instances if each.id not in below and each.placement not in places]
        self._refuse_foreign(targets[0], (), others)
        for target in targets:
            profile = table.profiles[target.profile_id]
            start = target.placement.start
            stay.append(DesiredInstance(profile.id, profile.name, (profile.default_compute.id,), start=start))
        return tuple(stay)

    def _refuse_held(self, target: VmTarget, holders: Sequence[Holder]) -> None:
        users = tuple(holder for holder in holders if holder not in self._own)
        if users:
            raise BlockedError(
                f"{target} is already held by {', '.join(map(str, users))}",
                code="HELD",
                next_step=holders_next_step(users),
            )

    def _refuse_foreign(self, target: VmTarget, vgpus: Sequence[Vgpu], instances: Sequence[GpuInstance]) -> None:
        """Refuse to destroy what was not created for a claim."""
        gpu = self._gpu
        inside = {vgpu.gpu_instance for vgpu in gpu.vgpus if is_own_vgpu(self._inventory, gpu, vgpu)}
        foreign = [each for each in instances if each not in self._created and each.id not in inside]
        what = [f"vGPU {vgpu.type} on {vgpu.function}" for vgpu in vgpus]
        what += [f"{each.profile} at {each.placement}" for each in foreign]
        if target.whole:
            what += [f"virtual function {address}" for address in passed_through_functions(gpu)]
        if what:
            raise ForeignInstanceError(
                f"{what[0]} of GPU {gpu.pci} is in the way of {target}, and was not created for this claim: it is kept",
                next_step=f"aliquot show --gpu {gpu.index}" if gpu.index >= 0 else "aliquot show",
            )


def _present(vgpu: Vgpu) -> DesiredVgpu:
    return DesiredVgpu(vgpu.type_id, vgpu.type, vgpu.function, vgpu.uuid)


def _new(target: VmTarget) -> DesiredVgpu:
    assert target.vgpu is not None
    return DesiredVgpu(target.vgpu.id or 0, target.vgpu.name, uuid=target.uuid)
