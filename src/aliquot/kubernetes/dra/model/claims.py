"""ResourceClaims of ``resource.k8s.io/v1``, as the scheduler allocated them.

The allocation has its own copy of the configuration, so the ``spec`` is not needed.
"""

from __future__ import annotations

from typing import ClassVar

from aliquot.kubernetes.client.object_base import ResourceType
from aliquot.kubernetes.dra.model.objects import GROUP
from aliquot.kubernetes.kinds.claim_status import AllocatedConfig, AllocationResult, ClaimObject


class ResourceClaim(ClaimObject, frozen=True):
    """A request for devices, and what was allocated to it."""

    TYPE: ClassVar[ResourceType] = ResourceType(GROUP, "v1", "resourceclaims", "ResourceClaim")

    def __str__(self) -> str:
        return f"claim {self.metadata.namespace}/{self.name}"

    @property
    def results(self) -> tuple[AllocationResult, ...]:
        """The allocated devices of all drivers."""
        return self.status.results

    @property
    def configs(self) -> tuple[AllocatedConfig, ...]:
        """The configuration for all drivers."""
        return self.status.allocation.devices.config if self.status.allocation else ()

    @property
    def pods(self) -> tuple[str, ...]:
        """The names of the pods that may use the claim. They are in its namespace."""
        return self.status.pods
