"""The plan for the devices of claims: exactly the allocated placements, beside everything that must stay. Pure.

Held instances and those of other claims stay. So do instances that were not created for a claim: their owner may not
run now. An idle instance of an earlier claim stays until it is in the way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from aliquot.core.model.desired import Desired, DesiredGpu, DesiredInstance
from aliquot.core.model.inventory import Gpu, GpuInstance, Holder, Inventory
from aliquot.core.model.plan import Plan, Policy
from aliquot.core.planner.blockers import find_infeasible, holders_next_step
from aliquot.core.planner.placement_table import PlacementTable, compiled_table
from aliquot.core.planner.plan import plan
from aliquot.core.planner.restore_point import instance_requests
from aliquot.errors import AliquotError, BlockedError
from aliquot.kubernetes.dra.agent import vm_plan
from aliquot.kubernetes.dra.agent.claim_types import (
    AllocatedClaim,
    AllocatedDevice,
    DeviceFinder,
    DeviceLocation,
    ForeignInstanceError,
    UnknownClaimedDeviceError,
)
from aliquot.kubernetes.dra.agent.device_targets import DeviceTarget, VmTarget
from aliquot.node.holders.prepared_claims import ClaimRecords, CreatedInstance, RecordedClaim, RecordedDevice


class ClaimPlan(msgspec.Struct, frozen=True):
    """The plan for several claims. ``refused`` are those that are left out, by uid."""

    plan: Plan
    targets: dict[str, tuple[DeviceTarget, ...]]
    refused: dict[str, AliquotError]

    @property
    def created(self) -> tuple[CreatedInstance, ...]:
        """The instances that the plan creates for the claims."""
        return tuple(
            CreatedInstance(target.gpu.uuid, target.profile_id, target.place)
            for targets in self.targets.values()
            for target in targets
            if target.place and target.instance_in(target.gpu) is None
        )


class ClaimPlanner:
    """Plans claims on one state of the node, one after another. ``inventory`` includes the holders of devices."""

    def __init__(self, inventory: Inventory, records: ClaimRecords, find: DeviceFinder, policy: Policy) -> None:
        self._inventory = inventory
        self._records = records
        self._find = find
        self._policy = policy
        self._created = {(c.gpu, c.profile_id, c.placement) for c in records.created}
        self._targets: dict[str, list[DeviceTarget]] = {}
        self._desired: dict[str, DesiredGpu] = {}

    def plan(self, claims: Sequence[AllocatedClaim]) -> ClaimPlan:
        """Plan all claims. A claim that is refused does not affect the others.

        One that must wait for the next plan is neither a target nor refused.
        """
        accepted: dict[str, tuple[DeviceTarget, ...]] = {}
        refused: dict[str, AliquotError] = {}
        for claim in claims:
            try:
                targets = tuple(self._target(claim, device) for device in claim.devices)
                if any(vm_plan.must_wait(target, self._targets.get(target.gpu.pci, ())) for target in targets):
                    continue
                self._add(claim, targets)
                accepted[claim.reference.uid] = targets
            except AliquotError as error:
                refused[claim.reference.uid] = error
        name = str(claims[0].reference) if len(claims) == 1 else f"{len(claims)} claims"
        return ClaimPlan(self._plan_gpus(self._desired, name), accepted, refused)

    def _add(self, claim: AllocatedClaim, targets: Sequence[DeviceTarget]) -> None:
        """Add one claim. Raises AliquotError; then nothing was added."""
        wanted = {pci: list(found) for pci, found in self._targets.items()}
        for target in targets:
            self._refuse_taken(claim, target, wanted.get(target.gpu.pci, ()))
            if not target.allocated.shared:
                wanted.setdefault(target.gpu.pci, []).append(target)
            elif not target.uuid_in(target.gpu):
                raise UnknownClaimedDeviceError(
                    f"{claim.reference} has admin access to {target}, which does not exist now",
                    next_step="start the pod of another claim that has this device first",
                )
        own = {each.holder for each in self._records.claims if each.uid == claim.reference.uid}
        touched = {target.gpu.pci for target in targets if not target.allocated.shared}
        desired = {pci: self._desired_gpu(self._inventory.gpu(pci), wanted[pci], own) for pci in touched}
        made = self._plan_gpus(desired, str(claim.reference))
        if made.blocked:
            first = made.blockers[0]
            raise BlockedError(
                f"{claim.reference}: {first.message}", code=first.rule, next_step=first.next_step or "aliquot show"
            )
        if made.reboots:
            raise BlockedError(
                f"{claim.reference}: MIG mode of GPU {made.reboots[0]} changes only with a reboot",
                code="NEEDS_REBOOT",
                next_step="drain and reboot the node",
            )
        self._targets, self._desired = wanted, self._desired | desired

    def _plan_gpus(self, desired: Mapping[str, DesiredGpu], name: str) -> Plan:
        return plan(self._inventory, Desired(tuple(desired.values()), name=name), self._policy)

    def _target(self, claim: AllocatedClaim, device: AllocatedDevice) -> DeviceTarget:
        location = self._find(self._inventory, device.pool, device.device)
        gpu = next((g for g in self._inventory.gpus if location is not None and g.pci == location.gpu), None)
        if location is None or gpu is None:
            lost = " and ".join(f"GPU {each.pci} fell off the bus" for each in self._inventory.gpus if each.lost)
            raise UnknownClaimedDeviceError(
                f"{claim.reference} has device {device.device!r} of pool {device.pool!r}, and this node has no GPU "
                f"for it now{lost and f': {lost}'}",
                next_step=f"kubectl -n {claim.reference.namespace} describe resourceclaim {claim.reference.name}",
            )
        if location.vm:
            return vm_plan.vm_target(self._inventory, claim, device, gpu, location)
        if location.profile is None:
            return DeviceTarget(device, gpu)
        return self._instance_target(claim, device, gpu, location)

    def _instance_target(
        self, claim: AllocatedClaim, device: AllocatedDevice, gpu: Gpu, location: DeviceLocation
    ) -> DeviceTarget:
        table = self._placement_table(gpu)
        profile = table.family.by_name.get(location.profile or "") if table else None
        if profile is None or location.start not in profile.starts:
            raise UnknownClaimedDeviceError(
                f"{claim.reference} has device {device.device!r}, but GPU {gpu.pci} ({gpu.product}) has no "
                f"{location.profile} at memory slice {location.start}",
                next_step=f"aliquot profiles {gpu.pci}",
            )
        return DeviceTarget(device, gpu, profile.id, profile.name, profile.placement(location.start))

    def _placement_table(self, gpu: Gpu) -> PlacementTable | None:
        try:
            return compiled_table(self._inventory.family(gpu)) if gpu.mig.capable else None
        except KeyError:
            return None

    def _refuse_taken(self, claim: AllocatedClaim, target: DeviceTarget, beside: Sequence[DeviceTarget]) -> None:
        """Raise BlockedError if another claim has a part of the device, or a device of the same moment does."""
        if target.allocated.shared:
            return
        for record in self._records.claims:
            taken = any(target.overlaps(device) for device in record.devices if not device.shared)
            if taken and record.uid != claim.reference.uid:
                raise _held(claim, target, (record.holder,))
        for other in beside:
            if target.excludes(other):
                raise BlockedError(
                    f"{claim.reference} has {target}, but {other} was allocated at the same time",
                    code="HELD",
                    next_step="kubectl get resourceclaims --all-namespaces",
                )

    def _desired_gpu(self, gpu: Gpu, targets: Sequence[DeviceTarget], own: set[Holder]) -> DesiredGpu:
        """Return the GPU with the targets and everything that stays beside them."""
        for_vms = [target for target in targets if isinstance(target, VmTarget)]
        if for_vms:
            created = {each for each in gpu.instances if not self._is_foreign(gpu, each)}
            return vm_plan.VmGpu(self._inventory, gpu, self._records, own, created).desired(for_vms)
        if targets[0].whole:
            users = tuple(h for h in gpu.holders if h not in own and h.kind not in vm_plan.NO_OWNER)
            if users:
                raise BlockedError(
                    f"GPU {gpu.pci} is already held by {', '.join(map(str, users))}",
                    code="HELD",
                    next_step=holders_next_step(users),
                )
            for instance in gpu.instances:
                self._refuse_foreign(gpu, instance, targets[0])
            return DesiredGpu(gpu.pci, mig=False if gpu.mig.capable else None, instances=())
        table = self._placement_table(gpu)
        assert table is not None  # the targets come from it
        requests = [_request(table, target) for target in targets]
        present = dict(
            zip(gpu.instances, instance_requests(gpu, self._inventory.places_compute_instances), strict=True)
        )
        kept_first = sorted(gpu.instances, key=lambda i: (not i.held, not self._is_foreign(gpu, i), i.id))
        for instance in kept_first:
            target = next((t for t in targets if t.placement.mask & instance.place.mask), None)
            if target is not None and target.instance_in(gpu) is instance:
                self._refuse_used(gpu, instance, target, own)
                continue
            fits = target is None and find_infeasible(table, gpu, [*requests, present[instance]]) is None
            if fits:
                requests.append(present[instance])
            else:
                self._refuse_foreign(gpu, instance, target or targets[-1])
        return DesiredGpu(gpu.pci, mig=True, instances=tuple(requests))

    def _is_foreign(self, gpu: Gpu, instance: GpuInstance) -> bool:
        return (gpu.uuid, instance.profile_id, instance.placement) not in self._created

    def _refuse_used(self, gpu: Gpu, instance: GpuInstance, target: DeviceTarget, own: set[Holder]) -> None:
        """Refuse to give an instance that has a holder, or to change the compute instances of a foreign one."""
        others = tuple(holder for holder in instance.holders if holder not in own)
        if others or (instance.held and not instance.holders):
            raise BlockedError(
                f"{target} is already held by {', '.join(map(str, others)) or 'a client'}",
                code="HELD",
                next_step=holders_next_step(others),
            )
        if not target.uuid_in(gpu):
            self._refuse_foreign(gpu, instance, target)

    def _refuse_foreign(self, gpu: Gpu, instance: GpuInstance, target: DeviceTarget) -> None:
        """Refuse to destroy an idle instance that was not created for a claim. The plan refuses held ones."""
        if instance.held or not self._is_foreign(gpu, instance):
            return
        raise ForeignInstanceError(
            f"{instance.profile} at {instance.placement} of GPU {gpu.pci} is in the way of {target}, "
            "and was not created for a claim: it is kept",
            next_step=f"if it is not needed: aliquot apply --gpu {gpu.index} --mig empty",
        )


def _held(claim: AllocatedClaim, target: DeviceTarget, holders: tuple[Holder, ...]) -> BlockedError:
    return BlockedError(
        f"{claim.reference} has {target}, which is held by {holders[0]}",
        code="HELD",
        next_step=holders_next_step(holders),
    )


def _request(table: PlacementTable, target: DeviceTarget) -> DesiredInstance:
    """Return the device as a request: a GPU instance with the one compute instance that fills it."""
    profile = table.profiles[target.profile_id]
    return DesiredInstance(profile.id, profile.name, (profile.default_compute.id,), start=target.placement.start)


def record(
    claim: AllocatedClaim,
    targets: Sequence[DeviceTarget],
    inventory: Inventory,
    boot: str,
    files: Mapping[str, Sequence[str]],
) -> RecordedClaim | None:
    """Return the record of a claim whose devices exist; None if one is missing.

    ``files`` are those that open the devices of VMs, by UUID.
    """
    devices = []
    for target in targets:
        gpu = next((g for g in inventory.gpus if g.pci == target.gpu.pci), None)
        uuid = target.uuid_in(gpu) if gpu is not None else ""
        if not uuid:
            return None
        given = target.allocated
        made = RecordedDevice(
            given.requests,
            given.pool,
            given.device,
            gpu.identity if gpu is not None else "",
            target.profile_id,
            target.place,
            uuid,
            shared=given.shared,
        )
        if isinstance(target, VmTarget) and gpu is not None:
            opened = files.get(uuid, ())
            if not opened:
                return None
            replaced = {"vm": target.vm, "function": target.function_in(gpu), "vfio_files": opened}
            made = msgspec.structs.replace(made, placement=target.place_in(gpu), **replaced)
        devices.append(made)
    reference = claim.reference
    return RecordedClaim(reference.uid, reference.namespace, reference.name, boot, tuple(devices), claim.pod_claim)
