"""The entry points of VM reviews: a request and the verdict, once to complete the VM and once to validate it."""

from __future__ import annotations

from typing import Any

import msgspec

from aliquot.kubernetes.client.admission_review import DELETE, UPDATE, AdmissionRequest, AdmissionVerdict
from aliquot.kubernetes.client.errors import ApiError
from aliquot.kubernetes.kinds.kubevirt import VirtualMachine, VirtualMachineInstance
from aliquot.kubernetes.virtual_machines.kubevirt.admission import validation as check
from aliquot.kubernetes.virtual_machines.kubevirt.admission.device_meanings import VmClusterState
from aliquot.kubernetes.virtual_machines.kubevirt.admission.mutation import annotation_patch, fill_devices, patches
from aliquot.kubernetes.virtual_machines.kubevirt.device_demand import VmDemand, instance_demand, vm_demand

JSON = dict[str, Any]
VIRTUAL_MACHINES, INSTANCES = "virtualmachines", "virtualmachineinstances"
_BASE = "/spec/template/spec/domain/devices"


def mutate(request: AdmissionRequest, cluster: VmClusterState) -> AdmissionVerdict:
    """Complete a VM that is created, whose devices change, or that is stopped.

    A stopped VM is completed so that its next start matches the current kernel of its node. A running VM and one that
    is being deleted stay as they are.
    """
    pair = _read_vms(request)
    if pair is None or pair[1].metadata.deletion_timestamp or cluster.snapshot.trusts(request):
        return AdmissionVerdict()
    old, new = pair
    live = cluster.snapshot.instances.get((request.namespace, request.name))
    stopped = live is None or live.finished
    if old is not None and old.devices == new.devices and not stopped:
        return AdmissionVerdict()
    raw = request.raw()
    before = _lists(raw)
    try:
        filled = fill_devices(*before, cluster)
    except (msgspec.ValidationError, AttributeError, TypeError):
        return AdmissionVerdict()  # malformed: KubeVirt's schema gives the better error
    more = annotation_patch(raw, filled) if stopped else ()
    return AdmissionVerdict(warnings=filled.warnings, patches=(*patches(_BASE, before, filled), *more))


def validate(request: AdmissionRequest, cluster: VmClusterState) -> AdmissionVerdict:
    """Validate that a VM may request its devices.

    A write that changes neither the devices nor whether the VM should run is never rejected: it must be possible to
    stop, label and delete a VM whose GPU is gone.
    """
    if request.resource.resource == INSTANCES:
        return _validate_instance(request, cluster)
    pair = _read_vms(request)
    if pair is None or pair[1].metadata.deletion_timestamp or cluster.snapshot.trusts(request):
        return AdmissionVerdict()
    old, new = pair
    changed = old is None or old.devices != new.devices
    starts = new.should_run and (old is None or not old.should_run)
    reasons: list[str] = []
    if changed or starts:
        reasons += map(str, check.device_errors(new.devices, cluster))
    if new.should_run and (changed or starts) and not reasons:
        return _check_capacity(vm_demand(new), cluster)
    return AdmissionVerdict(reasons=tuple(dict.fromkeys(reasons)))


def demand(request: AdmissionRequest) -> VmDemand | None:
    """Return the demand of an admitted VM, to be counted until its object is visible.

    The demand of a stopped VM is empty, which replaces what an earlier write reserved. Return None if the write creates
    no VM, or an instance of a VM that is counted itself.
    """
    if request.dry_run or request.operation == DELETE:
        return None
    if request.resource.resource == INSTANCES:
        instance = request.new(VirtualMachineInstance)
        found = None if instance is None or _owned(instance) else instance_demand(instance)
    else:
        vm = request.new(VirtualMachine)
        found = None if vm is None else vm_demand(vm)
        if vm is not None and found is not None and not _is_starting(vm):
            found = msgspec.structs.replace(found, counts={})
    if found is None:
        return None
    return msgspec.structs.replace(found, namespace=request.namespace, name=found.name or request.name)


def _is_starting(vm: VirtualMachine) -> bool:
    return vm.should_run and not vm.metadata.deletion_timestamp


def _owned(instance: VirtualMachineInstance) -> bool:
    return any(each.kind == "VirtualMachine" for each in instance.metadata.owner_references)


def _validate_instance(request: AdmissionRequest, cluster: VmClusterState) -> AdmissionVerdict:
    """Validate an instance whose VM was not validated.

    The restart of a VM after a reboot must not be rejected because its devices appear a moment later. For the same
    reason, devices from an instance type are not checked against capacity.
    """
    try:
        new = request.new(VirtualMachineInstance)
    except ApiError:
        return AdmissionVerdict()
    if new is None or request.operation == UPDATE:
        return AdmissionVerdict()
    owner = next((each.name for each in new.metadata.owner_references if each.kind == "VirtualMachine"), "")
    vm = cluster.snapshot.vms.get((request.namespace, owner))
    if owner == new.name and (vm is None or _was_judged(vm, instance_demand(new))):
        return (
            AdmissionVerdict()
        )  # without a VM, the garbage collector removes the instance, unless the VM still arrives
    if reasons := tuple(dict.fromkeys(map(str, check.device_errors(new.devices, cluster)))):
        return AdmissionVerdict(reasons=reasons)
    typed = vm is not None and vm.should_run and vm.spec.instancetype is not None
    return AdmissionVerdict() if typed else _check_capacity(instance_demand(new), cluster)


def _was_judged(vm: VirtualMachine, requested: VmDemand) -> bool:
    """Report whether the requests of an instance were validated with its VM.

    Those of a VM that is started by hand were not: its object does not change at the start.
    """
    has = vm_demand(vm).counts
    by_hand = vm.spec.run_strategy == "Manual" or not vm.should_run
    return not by_hand and all(has.get(resource, 0) >= count for resource, count in requested.counts.items())


def _check_capacity(requested: VmDemand, cluster: VmClusterState) -> AdmissionVerdict:
    found = check.check_fit(requested, cluster)
    if found.fits:
        return AdmissionVerdict(warnings=(found.sentence,) if found.sentence else ())
    return AdmissionVerdict(reasons=(f"{found.sentence}: see {found.next_step}",))


def _read_vms(request: AdmissionRequest) -> tuple[VirtualMachine | None, VirtualMachine] | None:
    """Return the old and new VM; None for another resource or a VM that cannot be read: KubeVirt reports that
    better.
    """
    if request.resource.resource != VIRTUAL_MACHINES or request.sub_resource:
        return None
    try:
        old, new = request.old(VirtualMachine), request.new(VirtualMachine)
    except ApiError:
        return None
    return None if new is None else (old, new)


def _lists(raw: JSON) -> tuple[list[JSON], list[JSON]]:
    found: Any = raw
    for step in _BASE.strip("/").split("/"):
        found = found.get(step) if isinstance(found, dict) else None
    devices: JSON = found if isinstance(found, dict) else {}
    return list(devices.get("gpus") or ()), list(devices.get("hostDevices") or ())
