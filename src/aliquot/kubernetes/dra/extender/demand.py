"""The devices that a pod still needs: from its claims, and from extended resources that device classes stand for.

Source: k8s.io/api resource/v1/types.go, and kube-scheduler 1.36, plugins/dynamicresources/extendeddynamicresources.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from aliquot.kubernetes.client.object_base import ApiStruct, KubeObject, ResourceType
from aliquot.kubernetes.client.pending_pod import PendingContainer
from aliquot.kubernetes.client.pods import Toleration
from aliquot.kubernetes.dra.extender.messages import ScheduledPod
from aliquot.kubernetes.dra.extender.selectors import FieldCondition, UnknownRequestError, read_selectors
from aliquot.kubernetes.dra.model.device_classes import preferred_class
from aliquot.kubernetes.dra.model.objects import GROUP, DeviceClass, DeviceSelector
from aliquot.kubernetes.gpu.quantity import read
from aliquot.kubernetes.kinds.claim_status import AllocationResult, ResourceClaimStatus

IMPLICIT_RESOURCE = "deviceclass.resource.kubernetes.io/"
"""The extended resource of every device class is this and the name of the class."""
MOST_DEVICES = 32
"""Devices of a claim."""


class DeviceRequestDetail(ApiStruct, frozen=True):
    """A request for devices of a class, or an alternative of one."""

    name: str = ""
    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: str = "ExactCount"
    count: int = 1
    admin_access: bool = False
    tolerations: tuple[Toleration, ...] = ()
    capacity: dict[str, Any] | None = None


class ClaimRequest(ApiStruct, frozen=True):
    name: str = ""
    exactly: DeviceRequestDetail | None = None
    first_available: tuple[DeviceRequestDetail, ...] = ()


class ClaimConstraint(ApiStruct, frozen=True):
    requests: tuple[str, ...] = ()
    """The requests that it is for. Empty for all."""
    match_attribute: str = ""


class DeviceClaimSpec(ApiStruct, frozen=True):
    requests: tuple[ClaimRequest, ...] = ()
    constraints: tuple[ClaimConstraint, ...] = ()


class RequestedClaimSpec(ApiStruct, frozen=True):
    devices: DeviceClaimSpec = DeviceClaimSpec()


class RequestedClaim(KubeObject, frozen=True):
    """A ResourceClaim: what it requests, and what it has."""

    TYPE: ClassVar[ResourceType] = ResourceType(GROUP, "v1", "resourceclaims", "ResourceClaim")

    spec: RequestedClaimSpec = RequestedClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()

    @property
    def held(self) -> tuple[AllocationResult, ...]:
        """The devices that it takes. Access for administration takes none."""
        return tuple(each for each in self.status.results if not each.admin_access)


class NeededDevices(msgspec.Struct, frozen=True):
    """Devices of one kind."""

    conditions: tuple[FieldCondition, ...]
    count: int = 1
    tolerations: tuple[Toleration, ...] = ()


class NeededChoice(msgspec.Struct, frozen=True):
    """A request: the first alternative that fits."""

    alternatives: tuple[NeededDevices, ...]


class EqualAttribute(msgspec.Struct, frozen=True):
    """An attribute that the devices of these requests (by number) must have in common."""

    requests: tuple[int, ...]
    attribute: str


class Demand(msgspec.Struct, frozen=True):
    """All devices that a pod still needs, in the order in which the scheduler allocates it."""

    requests: tuple[NeededChoice, ...] = ()
    constraints: tuple[EqualAttribute, ...] = ()


def pod_demand(pod: ScheduledPod, claims: Iterable[RequestedClaim], classes: Sequence[DeviceClass]) -> Demand:
    """Return what a pod with these claims needs. An allocated claim needs nothing.

    Raises UnknownRequestError if that cannot be predicted from the devices' fields.
    """
    by_name = {each.name: each for each in classes}
    requests: list[NeededChoice] = []
    constraints: list[EqualAttribute] = []
    for claim in claims:
        if claim.status.allocation is not None:
            continue
        devices = claim.spec.devices
        constraints += _constraints(devices, len(requests))
        requests += [_choice(request, by_name) for request in devices.requests]
    for name, count in _resources(pod, classes):
        requests += [NeededChoice((_needed(DeviceRequestDetail(device_class_name=name, count=count), by_name),))]
    return Demand(tuple(requests), tuple(constraints))


def _constraints(devices: DeviceClaimSpec, first: int) -> Iterator[EqualAttribute]:
    numbers = {request.name: first + number for number, request in enumerate(devices.requests)}
    for constraint in devices.constraints:
        if not constraint.match_attribute:
            raise UnknownRequestError("a claim has another constraint than matchAttribute")
        if any("/" in name for name in constraint.requests):
            raise UnknownRequestError("a constraint is for one alternative of a request")
        names = constraint.requests or tuple(numbers)
        found = tuple(numbers[name] for name in names if name in numbers)
        yield EqualAttribute(found, constraint.match_attribute)


def _choice(request: ClaimRequest, classes: Mapping[str, DeviceClass]) -> NeededChoice:
    details = request.first_available or ((request.exactly,) if request.exactly is not None else ())
    if not details:
        raise UnknownRequestError(f"request {request.name} is of an unknown kind")
    return NeededChoice(tuple(_needed(each, classes) for each in details))


def _needed(detail: DeviceRequestDetail, classes: Mapping[str, DeviceClass]) -> NeededDevices:
    found = classes.get(detail.device_class_name)
    if found is None:
        raise UnknownRequestError(f"device class {detail.device_class_name} is not known")
    if detail.allocation_mode != "ExactCount" or detail.capacity or not 0 < detail.count <= MOST_DEVICES:
        raise UnknownRequestError(f"a request for {detail.device_class_name} is not for a number of devices")
    selectors = (*found.spec.selectors, *detail.selectors)
    conditions = read_selectors(each.cel.expression for each in selectors)
    return NeededDevices(conditions, 0 if detail.admin_access else detail.count, detail.tolerations)


def _resources(pod: ScheduledPod, classes: Sequence[DeviceClass]) -> Iterator[tuple[str, int]]:
    """Yield the class and number of devices for the extended resources, container by container.

    Init containers end before the others start, unless they are sidecars: only what exceeds these is additional.
    """
    by_resource = {f"{IMPLICIT_RESOURCE}{each.name}": each.name for each in classes}
    same: dict[str, list[DeviceClass]] = {}
    for each in classes:
        if each.spec.extended_resource_name:
            same.setdefault(each.spec.extended_resource_name, []).append(each)
    by_resource |= {name: preferred_class(group).name for name, group in same.items()}
    at_once: dict[str, int] = {}
    sidecars = tuple(each for each in pod.spec.init_containers if each.restart_policy == "Always")
    for container in (*sidecars, *pod.spec.containers):
        for name, count in _amounts(container, by_resource):
            at_once[name] = at_once.get(name, 0) + count
            yield by_resource[name], count
    for container in (each for each in pod.spec.init_containers if each.restart_policy != "Always"):
        for name, count in _amounts(container, by_resource):
            if count > at_once.get(name, 0):
                yield by_resource[name], count - at_once.get(name, 0)
                at_once[name] = count


def _amounts(container: PendingContainer, names: Mapping[str, str]) -> Iterator[tuple[str, int]]:
    """Yield the number of each resource that a class stands for. Limits are requests where these are missing."""
    amounts = container.resources.limits | container.resources.requests
    for name in sorted(set(amounts) & set(names)):
        found = read(amounts[name])
        if found is not None and found.value > 0:
            yield name, int(found.value)
