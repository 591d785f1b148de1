"""The devices that VMs have, or wait for, through ResourceClaims. Pure.

They are counted by device class. A class has no total: devices that exclude each other are published together. KubeVirt
attaches one device for each request that a VM names. VMs that name one claim share its devices, which count once. A
template gives a VM a claim of its own at each start.

Source: KubeVirt 1.9, pkg/dra and the API reference (``gpus[].claimName``, ``requestName``, ``resourceClaims``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from aliquot.kubernetes.kinds.claim_status import POOL_SUFFIX
from aliquot.kubernetes.kinds.kubevirt import InstanceSpec, VirtualMachine, VirtualMachineInstance, VmClaimReference
from aliquot.kubernetes.kinds.vm_claims import (
    POD_CLAIM_ANNOTATION,
    VmClaim,
    VmClaimTemplate,
    class_of,
    launcher_stem,
    stem_of_pod,
)

_LauncherClaim = tuple[str, str, str]
"""Namespace, the stem of the launcher's name, and the name that the VM gives the claim."""
DemandState = Literal["allocated", "pending", "stopped"]
UNKNOWN_CLASS = "(unknown class)"
"""For a device whose claim and template do not exist, so that nothing names its class."""
_ORDER: tuple[DemandState, ...] = ("allocated", "pending", "stopped")


class ClaimedVmDevice(msgspec.Struct, frozen=True):
    """A device of a claim that VMs name."""

    namespace: str
    vms: tuple[str, ...]
    """The VMs that share it, by name."""
    device_class: str
    claim: str
    """The claim; for one that Kubernetes makes, the name that the VM gives it."""
    request: str
    state: DemandState
    node: str = ""
    """Where the device is; empty unless it is allocated."""


class ClaimClassCapacity(msgspec.Struct, frozen=True):
    """The devices of a class that VMs have or want."""

    device_class: str
    allocated: int = 0
    pending: int = 0
    """Wanted by VMs that should run, and not allocated yet."""
    stopped: int = 0
    """Wanted by VMs that should not run."""
    nodes: Mapping[str, int] = {}
    """Allocated devices by node, sorted."""


class ClaimObservation(msgspec.Struct, frozen=True):
    """The claims and templates of a cluster."""

    claims: tuple[VmClaim, ...] = ()
    templates: tuple[VmClaimTemplate, ...] = ()


class _User(msgspec.Struct, frozen=True):
    """A VM that names claims: as it was started, or as it would start."""

    namespace: str
    name: str
    spec: InstanceSpec
    state: DemandState
    nodes: tuple[str, ...] = ()


def claimed_devices(
    vms: Iterable[VirtualMachine], instances: Iterable[VirtualMachineInstance], observation: ClaimObservation
) -> tuple[ClaimedVmDevice, ...]:
    """Return the devices of the claims that VMs name, each once, by namespace, VM and claim."""
    claims = {each.key: each for each in observation.claims}
    templates = {each.key: each for each in observation.templates}
    generated = _generated_claims(observation.claims)
    shared: dict[tuple[str, str, str], ClaimedVmDevice] = {}
    own: list[ClaimedVmDevice] = []
    for user in _users(vms, instances):
        for reference, request in _requests(user.spec):
            if reference.resource_claim_name:
                found = _shared_device(user, reference.resource_claim_name, request, claims)
                key = user.namespace, found.claim, request
                shared[key] = _merged(shared.get(key), found)
            else:
                own += _own_devices(user, reference, request, templates, generated)
    return tuple(sorted((*shared.values(), *own), key=lambda each: (each.namespace, each.vms, each.claim, each.node)))


def class_capacities(devices: Iterable[ClaimedVmDevice]) -> tuple[ClaimClassCapacity, ...]:
    """Count the devices by class, sorted."""
    by_class: dict[str, list[ClaimedVmDevice]] = {}
    for each in devices:
        by_class.setdefault(each.device_class, []).append(each)
    return tuple(_class_capacity(name, by_class[name]) for name in sorted(by_class))


def _class_capacity(name: str, devices: Sequence[ClaimedVmDevice]) -> ClaimClassCapacity:
    allocated, pending, stopped = (sum(each.state == state for each in devices) for state in _ORDER)
    nodes = sorted(each.node for each in devices if each.node)
    return ClaimClassCapacity(name, allocated, pending, stopped, {node: nodes.count(node) for node in nodes})


def _users(vms: Iterable[VirtualMachine], instances: Iterable[VirtualMachineInstance]) -> Iterator[_User]:
    """Yield each VM once: as it was started if it is, otherwise as it would start.

    An instance that has ended has no claim; a VirtualMachine that is being deleted wants none.
    """
    all_ = tuple(instances)
    live = {each.key: each for each in all_ if not each.finished}
    ended = {each.key: each.status.phase for each in all_ if each.finished}
    for each in live.values():
        nodes = tuple(dict.fromkeys(node for node in (each.status.node_name, each.migration_target) if node))
        yield _User(each.metadata.namespace, each.name, each.spec, "allocated" if nodes else "pending", nodes)
    for vm in vms:
        if vm.key in live or vm.metadata.deletion_timestamp:
            continue
        wanted = vm.should_run_after(ended[vm.key]) if vm.key in ended else vm.should_run
        yield _User(vm.metadata.namespace, vm.name, vm.spec.template.spec, "pending" if wanted else "stopped")


def _requests(spec: InstanceSpec) -> Iterator[tuple[VmClaimReference, str]]:
    """Yield the claims and requests that a VM names, each once. A name without its claim gets no device."""
    references = {each.name: each for each in spec.resource_claims or ()}
    entries = (entry for entry in spec.domain.devices.all if entry.claim_name and not entry.device_name)
    for claim, request in dict.fromkeys((entry.claim_name, entry.request_name) for entry in entries):
        if claim in references:
            yield references[claim], request


def _shared_device(user: _User, name: str, request: str, claims: Mapping[tuple[str, str], VmClaim]) -> ClaimedVmDevice:
    """Return the device of a claim that exists by itself. The claim says whether the device is allocated."""
    claim = claims.get((user.namespace, name))
    granted = claim.granted(request) if claim is not None else None
    state: DemandState = "stopped" if user.state == "stopped" else "pending"
    if granted is not None and user.state != "stopped":
        state = "allocated"
    # Drivers of GPUs name the pool by the node, and ours adds its suffix.
    node = (
        (*user.nodes, granted.pool.removesuffix(POOL_SUFFIX))[0] if granted is not None and state == "allocated" else ""
    )
    return ClaimedVmDevice(
        user.namespace,
        (user.name,),
        (claim.device_class(request) if claim is not None else "") or UNKNOWN_CLASS,
        name,
        request,
        state,
        node,
    )


def _merged(known: ClaimedVmDevice | None, found: ClaimedVmDevice) -> ClaimedVmDevice:
    """Return one device for two VMs that share it, in the state of the one that is further."""
    if known is None:
        return found
    best = min((known, found), key=lambda each: _ORDER.index(each.state))
    return msgspec.structs.replace(best, vms=tuple(sorted({*known.vms, *found.vms})))


def _own_devices(
    user: _User,
    reference: VmClaimReference,
    request: str,
    templates: Mapping[tuple[str, str], VmClaimTemplate],
    generated: Mapping[_LauncherClaim, VmClaim],
) -> Iterator[ClaimedVmDevice]:
    """Yield the device of a claim that Kubernetes makes for each launcher: two while the VM moves to another node.

    A launcher has a node only once its claims are allocated.
    """
    template = templates.get((user.namespace, reference.resource_claim_template_name or ""))
    claim = generated.get((user.namespace, launcher_stem(user.name), reference.name))
    device_class = claim.device_class(request) if claim is not None else ""
    device_class = device_class or (class_of(template.spec.spec, request) if template is not None else "")
    for node in user.nodes or ("",):
        yield ClaimedVmDevice(
            user.namespace, (user.name,), device_class or UNKNOWN_CLASS, reference.name, request, user.state, node
        )


def _generated_claims(claims: Iterable[VmClaim]) -> dict[_LauncherClaim, VmClaim]:
    """Return the claims that Kubernetes made for pods, the first of each stem and name: in one pass, because a cluster
    has as many as VMs.
    """
    found: dict[_LauncherClaim, VmClaim] = {}
    for claim in claims:
        pod_claim = claim.metadata.annotations.get(POD_CLAIM_ANNOTATION)
        if pod_claim is None:
            continue
        for pod in claim.status.pods:
            found.setdefault((claim.metadata.namespace, stem_of_pod(pod), pod_claim), claim)
    return found
