"""The VMs that have devices through ResourceClaims, from what drivers report in the claims' statuses. Pure.

A claim holds its devices while it is reserved for a pod. The name of a launcher pod tells which VM it runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from aliquot.errors import Message
from aliquot.kubernetes.kinds import harvester_names as names
from aliquot.kubernetes.kinds.claim_status import ClaimObject, ReportedDevice
from aliquot.kubernetes.kinds.kubevirt import VirtualMachine, VirtualMachineInstance
from aliquot.kubernetes.kinds.vm_claims import launcher_stem, stem_of_pod
from aliquot.kubernetes.virtual_machines.harvester.admission.snapshot import AdmissionSnapshot, Key, shorten_list
from aliquot.kubernetes.virtual_machines.harvester.reasons import advice


class ClaimHolder(msgspec.Struct, frozen=True):
    """A claim that is reserved for pods, with the VMs that these pods run."""

    claim: Key
    vms: tuple[str, ...]
    """The VMs that run, by name. They are in the claim's namespace."""
    pods: tuple[str, ...]


def claim_holders(snapshot: AdmissionSnapshot) -> dict[str, ClaimHolder]:
    """Return the claim that holds each device, by the name of the function's objects, which all kinds share."""
    used = [claim for _, claim in sorted(snapshot.resource_claims.items()) if claim.status.pods]
    reported = [(claim, device) for claim in used for device in claim.status.reported]
    if not reported:
        return {}
    vgpus = {vgpu.status.uuid: name for name, vgpu in snapshot.vgpus.items() if vgpu.status.uuid}
    launchers = _launchers(snapshot)
    found: dict[str, ClaimHolder] = {}
    for claim, device in reported:
        for name in _object_names(device, vgpus):
            found.setdefault(name, _holder(claim, launchers))
    return found


def _object_names(device: ReportedDevice, vgpus: Mapping[str, str]) -> Iterator[str]:
    if device.function:
        yield names.object_name(device.node, device.function)
    if device.uuid in vgpus:
        yield vgpus[device.uuid]


def _launchers(snapshot: AdmissionSnapshot) -> dict[Key, str]:
    """Return the VMs that run by what their launchers' names have in common; "" where several VMs have it."""
    found: dict[Key, str] = {}
    for (space, vm), instance in snapshot.instances.items():
        if not instance.finished:
            stem = space, launcher_stem(vm)
            found[stem] = "" if stem in found else vm
    return found


def _holder(claim: ClaimObject, launchers: Mapping[Key, str]) -> ClaimHolder:
    space, pods = claim.metadata.namespace, claim.status.pods
    vms = dict.fromkeys(launchers.get((space, stem_of_pod(pod)), "") for pod in pods)
    return ClaimHolder(claim.key, tuple(vm for vm in vms if vm), pods)


def claimed_sentence(name: str, holder: ClaimHolder, snapshot: AdmissionSnapshot) -> Message:
    """Describe who has a device through a claim, with the command that releases it or waits for that."""
    space, claim = holder.claim
    text = f"{name} is in use by ResourceClaim {claim} of"
    if not holder.vms:
        one = f"{text} pod {holder.pods[0]} in namespace {space}: it is free once the pod has ended"
        return advice(one, f"kubectl wait pod/{holder.pods[0]} -n {space} --for delete")
    several = "s" if len(holder.vms) > 1 else ""
    text = f"{text} VM{several} {shorten_list(holder.vms)} in namespace {space}"
    running = [vm for vm in holder.vms if not leaving_vm((space, vm), snapshot)]
    if not running:
        return leaving_vm((space, holder.vms[0]), snapshot, text) or Message(text)
    stoppable = {vm: snapshot.vms[space, vm] for vm in running if (space, vm) in snapshot.vms}
    if not stoppable:
        why = f"{text}, without a VirtualMachine: it is free once the VMI is deleted"
        return advice(why, f"kubectl get vmi {running[0]} -n {space}")
    return advice(f"{text}: stop the VM{several} to release it", stop_command(space, stoppable))


def leaving_vm(key: Key, snapshot: AdmissionSnapshot, text: str = "") -> Message | None:
    """Complete a sentence about a VM that ends without a command, with the one that waits for it; None if it stays."""
    space, name = key
    vm: VirtualMachine | None = snapshot.vms.get(key)
    instance: VirtualMachineInstance | None = snapshot.instances.get(key)
    if vm is not None and vm.metadata.deletion_timestamp:
        return advice(f"{text}, which is being deleted", f"kubectl wait vm/{name} -n {space} --for delete")
    if instance is not None and not instance.finished and instance.metadata.deletion_timestamp:
        return advice(f"{text}, which is stopping", f"kubectl wait vmi/{name} -n {space} --for delete")
    return None


def stop_command(space: str, vms: Mapping[str, VirtualMachine]) -> str:
    """Return the command that stops the first of these VMs, and all that are written like it.

    KubeVirt rejects ``running`` and ``runStrategy`` together.
    """
    switched = next(iter(vms.values())).spec.running is not None
    alike = [name for name, vm in vms.items() if (vm.spec.running is not None) == switched]
    spec = '{"running":false}' if switched else '{"runStrategy":"Halted"}'
    return f"""kubectl patch vm {" ".join(alike)} -n {space} --type merge -p '{{"spec":{spec}}}' (or virtctl stop)"""
