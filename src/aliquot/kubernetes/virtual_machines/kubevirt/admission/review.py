"""The entries: one request about a machine, and the verdict; once to fill in, once to judge what came of it."""

from __future__ import annotations

from typing import Any

import msgspec

from aliquot.kubernetes.client.admission_review import DELETE, UPDATE, Request, Verdict
from aliquot.kubernetes.client.errors import ApiError
from aliquot.kubernetes.kinds.kubevirt import VirtualMachine, VirtualMachineInstance
from aliquot.kubernetes.virtual_machines.kubevirt.admission import validate as check
from aliquot.kubernetes.virtual_machines.kubevirt.admission.device_meanings import Cluster
from aliquot.kubernetes.virtual_machines.kubevirt.admission.mutate import annotation, fill, patches
from aliquot.kubernetes.virtual_machines.kubevirt.device_demand import Demand, of_instance, of_machine

JSON = dict[str, Any]
MACHINES, INSTANCES = "virtualmachines", "virtualmachineinstances"
_BASE = "/spec/template/spec/domain/devices"


def mutate(request: Request, cluster: Cluster) -> Verdict:
    """What is filled in for a machine that is made, whose devices are changed, or that is stopped (so that it starts
    as its node's kernel needs it by now). What runs, and what is about to go, is left as it is.
    """
    pair = _machines(request)
    if pair is None or pair[1].metadata.deletion_timestamp or cluster.world.trusts(request):
        return Verdict()
    old, new = pair
    live = cluster.world.instances.get((request.namespace, request.name))
    stopped = live is None or live.over
    if old is not None and old.devices == new.devices and not stopped:
        return Verdict()
    raw = request.raw()
    before = _lists(raw)
    try:
        filled = fill(*before, cluster)
    except (msgspec.ValidationError, AttributeError, TypeError):
        return Verdict()  # not of KubeVirt's schema, which says so better
    more = annotation(raw, filled) if stopped else ()
    return Verdict(warnings=filled.warnings, patches=(*patches(_BASE, before, filled), *more))


def validate(request: Request, cluster: Cluster) -> Verdict:
    """Whether a machine may ask for its devices. A write that changes neither them nor whether it is to run is never
    refused: a machine whose GPU is gone must still be stopped, labelled, deleted.
    """
    if request.resource.resource == INSTANCES:
        return _instance(request, cluster)
    pair = _machines(request)
    if pair is None or pair[1].metadata.deletion_timestamp or cluster.world.trusts(request):
        return Verdict()
    old, new = pair
    changed = old is None or old.devices != new.devices
    starts = new.wanted and (old is None or not old.wanted)
    reasons: list[str] = []
    if changed or starts:
        reasons += check.devices(new.devices, cluster)
    if new.wanted and (changed or starts) and not reasons:
        return _fits(of_machine(new), cluster)
    return Verdict(reasons=tuple(dict.fromkeys(reasons)))


def demand(request: Request) -> Demand | None:
    """What an admitted machine will ask for, to be counted until it can be seen: nothing for one that is stopped, which
    takes back what an earlier write of it was admitted with. None where the write makes no machine, or an instance of
    one that is counted itself.
    """
    if request.dry_run or request.operation == DELETE:
        return None
    if request.resource.resource == INSTANCES:
        instance = request.new(VirtualMachineInstance)
        found = None if instance is None or _owned(instance) else of_instance(instance)
    else:
        machine = request.new(VirtualMachine)
        found = None if machine is None else of_machine(machine)
        if machine is not None and found is not None and not _starts(machine):
            found = msgspec.structs.replace(found, counts={})
    if found is None:
        return None
    return msgspec.structs.replace(found, namespace=request.namespace, name=found.name or request.name)


def _starts(machine: VirtualMachine) -> bool:
    return machine.wanted and not machine.metadata.deletion_timestamp


def _owned(instance: VirtualMachineInstance) -> bool:
    return any(each.kind == "VirtualMachine" for each in instance.metadata.owner_references)


def _instance(request: Request, cluster: Cluster) -> Verdict:
    """Only one that no judged machine stands behind: the restart of a machine after a reboot must not be refused
    because its devices come a moment later. For the same reason what an instance type adds is not judged by capacity.
    """
    try:
        new = request.new(VirtualMachineInstance)
    except ApiError:
        return Verdict()
    if new is None or request.operation == UPDATE:
        return Verdict()
    owner = next((each.name for each in new.metadata.owner_references if each.kind == "VirtualMachine"), "")
    machine = cluster.world.machines.get((request.namespace, owner))
    if owner == new.name and (machine is None or _judged(machine, of_instance(new))):
        return Verdict()  # of a machine that is not there the garbage collector removes it, if it does not come yet
    if reasons := tuple(dict.fromkeys(check.devices(new.devices, cluster))):
        return Verdict(reasons=reasons)
    typed = machine is not None and machine.wanted and machine.spec.instancetype is not None
    return Verdict() if typed else _fits(of_instance(new), cluster)


def _judged(machine: VirtualMachine, asked: Demand) -> bool:
    """Whether what its instance asks for was judged with the machine. One that is started by hand was not: nothing of
    it changes then.
    """
    has = of_machine(machine).counts
    by_hand = machine.spec.run_strategy == "Manual" or not machine.wanted
    return not by_hand and all(has.get(resource, 0) >= count for resource, count in asked.counts.items())


def _fits(asked: Demand, cluster: Cluster) -> Verdict:
    found = check.capacity(asked, cluster)
    if found.fits:
        return Verdict(warnings=(found.sentence,) if found.sentence else ())
    return Verdict(reasons=(f"{found.sentence}: see {found.next_step}",))


def _machines(request: Request) -> tuple[VirtualMachine | None, VirtualMachine] | None:
    """None for what is no machine, or cannot be read as one: KubeVirt's schema says that better."""
    if request.resource.resource != MACHINES or request.sub_resource:
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
