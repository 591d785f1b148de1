"""``aliquot capacity``: GPUs and vGPUs of a cluster, the VMs that hold them, and whether more VMs fit."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from aliquot.cli.framework import output
from aliquot.cli.framework.extras import missing_library
from aliquot.cli.framework.parser import Args
from aliquot.cli.views import capacity_view as capacityview
from aliquot.errors import BlockedError, UsageError
from aliquot.foundation.decimals import decimal

if TYPE_CHECKING:
    from aliquot.kubernetes.client.client import Api
    from aliquot.kubernetes.client.object_base import KubeObject
    from aliquot.kubernetes.virtual_machines.kubevirt.capacity import Capacity, ClusterObservation
    from aliquot.kubernetes.virtual_machines.kubevirt.claim_demand import ClaimedVmDevice, ClaimObservation
    from aliquot.kubernetes.virtual_machines.kubevirt.fit import FitResult

    T = TypeVar("T", bound=KubeObject)


def run(args: Args) -> int:
    """Show the capacity, or answer whether VMs fit. Returns 20 if they do not."""
    try:
        from aliquot.kubernetes.virtual_machines.kubevirt.capacity import measure
        from aliquot.kubernetes.virtual_machines.kubevirt.claim_demand import claimed_devices

        observation, claims = asyncio.run(_read_cluster(args.kubeconfig))
    except ModuleNotFoundError as error:
        raise missing_library(error, "agent", "capacity") from error
    found = measure(observation)
    devices = claimed_devices(observation.vms, observation.instances, claims)
    _check(args.resource, found, devices)
    answer = _fit(args, found)
    if answer is None:
        return _show(args, found, devices)
    return _emit_fit(args, answer)


async def _read_cluster(kubeconfig: str | None) -> tuple[ClusterObservation, ClaimObservation]:
    from aliquot.kubernetes.client.client import Api
    from aliquot.kubernetes.client.objects import Node
    from aliquot.kubernetes.kinds.harvester import PCIDevice, PCIDeviceClaim, VGPUDevice
    from aliquot.kubernetes.kinds.kubevirt import VirtualMachine, VirtualMachineInstance
    from aliquot.kubernetes.kinds.vm_claims import VmClaim, VmClaimTemplate
    from aliquot.kubernetes.virtual_machines.kubevirt.capacity import ClusterObservation
    from aliquot.kubernetes.virtual_machines.kubevirt.claim_demand import ClaimObservation

    async with Api.connect(kubeconfig) as api:
        cluster = ClusterObservation(
            await _all(api, Node),
            await _all(api, VGPUDevice),
            await _all(api, PCIDevice),
            await _all(api, PCIDeviceClaim),
            await _all(api, VirtualMachine),
            await _all(api, VirtualMachineInstance),
        )
        users = (*(vm.spec.template.spec for vm in cluster.vms), *(each.spec for each in cluster.instances))
        if not any(spec.resource_claims for spec in users):
            return cluster, ClaimObservation()
        return cluster, ClaimObservation(await _all(api, VmClaim), await _all(api, VmClaimTemplate))


async def _all(api: Api, kind: type[T]) -> tuple[T, ...]:
    """Return all objects of a kind; none if the cluster does not have the kind."""
    from aliquot.kubernetes.client.client import ALL_NAMESPACES
    from aliquot.kubernetes.client.errors import NotFoundError

    try:
        return await api.list(kind, ALL_NAMESPACES)
    except NotFoundError:
        return ()


def _check(resource: str | None, found: Capacity, devices: Sequence[ClaimedVmDevice]) -> None:
    if resource and resource not in found.resources and all(each.device_class != resource for each in devices):
        raise BlockedError(
            f"no node of this cluster offers {resource}, and no VM requests it",
            code="NO_SUCH_RESOURCE",
            details=tuple(f"this cluster has {each}" for each in found.resources),
            next_step="aliquot capacity",
        )


def _fit(args: Args, found: Capacity) -> FitResult | None:
    """Answer whether the requested VMs fit; None if none are requested. Raises UsageError, ConfigError."""
    from aliquot.kubernetes.virtual_machines.kubevirt import rancher
    from aliquot.kubernetes.virtual_machines.kubevirt.device_demand import VmDemand
    from aliquot.kubernetes.virtual_machines.kubevirt.fit import explain_fit

    counts = rancher.requests(args.vgpu_info or "", args.host_device_info or "")
    for resource, count in _parse_requests(args.request or ()):
        counts[resource] = counts.get(resource, 0) + count
    if not counts:
        if args.machines is not None or args.cluster:
            raise UsageError(
                "--machines and --cluster need the devices of a VM",
                next_step="aliquot capacity --request nvidia.com/NVIDIA_A2-4Q",
            )
        return None
    vms, namespace = 1 if args.machines is None else args.machines, args.namespace or "default"
    if args.cluster:
        pool = rancher.machine_pool(namespace, args.cluster, vms, counts, args.pool or "")
        return rancher.fit_pools(found, [pool])
    rancher.check_vm_count(vms)
    return explain_fit(found, [VmDemand(namespace, f"(new {n})", counts) for n in range(vms)])


def _parse_requests(words: Sequence[str]) -> list[tuple[str, int]]:
    """Parse ``RESOURCE`` or ``RESOURCE:COUNT``. Raises UsageError."""
    from aliquot.kubernetes.virtual_machines.kubevirt.capacity import is_vm_gpu_resource

    found = []
    for word in words:
        resource, _, count = word.partition(":")
        number = decimal(count or "1", 5)
        if not is_vm_gpu_resource(resource) or not number:
            step = "aliquot capacity --request nvidia.com/NVIDIA_A2-4Q:2"
            raise UsageError(f"{word} is not RESOURCE or RESOURCE:COUNT", next_step=step)
        found.append((resource, number))
    return found


def _show(args: Args, found: Capacity, devices: Sequence[ClaimedVmDevice]) -> int:
    from aliquot.kubernetes.virtual_machines.kubevirt import capacity_document as poll
    from aliquot.kubernetes.virtual_machines.kubevirt.claim_demand import class_capacities

    resource, classes = args.resource or "", class_capacities(devices)
    document = poll.document(found, resource, classes)
    document |= capacityview.vms(found, resource) | capacityview.claimed(devices, resource)
    output.emit(document, args.output, capacityview.page(found, classes, devices, resource))
    return 0


def _emit_fit(args: Args, answer: FitResult) -> int:
    from aliquot.kubernetes.virtual_machines.kubevirt import capacity_document as poll

    if args.output != "text":
        output.emit(poll.fit_document(answer), args.output, "")
        return 0 if answer.fits else BlockedError.exit_code
    if not answer.fits:
        raise BlockedError(answer.sentence, code="NO_CAPACITY", next_step=answer.next_step)
    output.emit({}, "text", answer.sentence or "it fits")
    return 0
