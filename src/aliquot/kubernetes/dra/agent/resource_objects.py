"""ResourceClaims of ``resource.k8s.io/v1``, with the fields that the agent reads.

Source: k8s.io/api resource/v1/types.go (Kubernetes 1.34 to 1.36).
"""

from __future__ import annotations

from typing import Any, ClassVar

from aliquot.kubernetes.client.object_base import ApiStruct, KubeObject, ResourceType
from aliquot.kubernetes.dra.model.objects import GROUP


class AllocationResult(ApiStruct, frozen=True):
    """A device that was allocated for a request."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool = False


class DeviceResults(ApiStruct, frozen=True):
    results: tuple[AllocationResult, ...] = ()
    config: tuple[dict[str, Any], ...] = ()
    """As it is in the claim: ``model.device_config`` checks it."""


class ClaimAllocationStatus(ApiStruct, frozen=True):
    devices: DeviceResults = DeviceResults()


class ClaimConsumer(ApiStruct, frozen=True):
    """An object for which a claim is reserved."""

    resource: str = ""
    name: str = ""


class ResourceClaimStatus(ApiStruct, frozen=True):
    allocation: ClaimAllocationStatus | None = None
    reserved_for: tuple[ClaimConsumer, ...] = ()
    devices: tuple[dict[str, Any], ...] = ()
    """What drivers report about allocated devices, as it is in the claim: entries of others are written back."""


class ResourceClaim(KubeObject, frozen=True):
    """A request for devices, and what was allocated to it."""

    TYPE: ClassVar[ResourceType] = ResourceType(GROUP, "v1", "resourceclaims", "ResourceClaim")

    status: ResourceClaimStatus = ResourceClaimStatus()

    @property
    def results(self) -> tuple[AllocationResult, ...]:
        """The allocated devices of all drivers."""
        return self.status.allocation.devices.results if self.status.allocation else ()

    @property
    def pods(self) -> tuple[str, ...]:
        """The names of the pods that may use the claim. They are in its namespace."""
        return tuple(each.name for each in self.status.reserved_for if each.resource == "pods")
