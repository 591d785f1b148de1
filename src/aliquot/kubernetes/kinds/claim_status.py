"""The status of a ResourceClaim: what the scheduler allocated to whom, with the fields that Aliquot reads.

Source: k8s.io/api resource/v1/types.go (Kubernetes 1.34 to 1.36).
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from aliquot.kubernetes.client.object_base import ApiStruct, KubeObject

POOL_SUFFIX = "-aliquot"
"""The pool that our own driver publishes for a node has the node's name and this."""
ConfigSource = Literal["FromClass", "FromClaim"]


class AllocationResult(ApiStruct, frozen=True):
    """A device that was allocated for a request."""

    request: str = ""
    """The request, or ``request/alternative`` for one of ``firstAvailable``."""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool = False
    """The device may be allocated to others too, and is not taken by it."""
    share_id: str = msgspec.field(name="shareID", default="")
    """Set if the device is allocated in shares, which Aliquot never offers."""


class OpaqueConfig(ApiStruct, frozen=True):
    driver: str = ""
    parameters: Any = None
    """JSON as the author wrote it. ``device_config`` checks it."""


class AllocatedConfig(ApiStruct, frozen=True):
    """Configuration from a device class or the claim."""

    source: str = "FromClaim"
    """One of ``ConfigSource``."""
    requests: tuple[str, ...] = ()
    """The requests that it is for. Empty for all. A name without alternative includes all alternatives."""
    opaque: OpaqueConfig | None = None

    def covers(self, result: AllocationResult) -> bool:
        return not self.requests or bool({result.request, result.request.partition("/")[0]} & set(self.requests))


class DeviceResults(ApiStruct, frozen=True):
    results: tuple[AllocationResult, ...] = ()
    config: tuple[AllocatedConfig, ...] = ()


class ClaimAllocationStatus(ApiStruct, frozen=True):
    devices: DeviceResults = DeviceResults()


class ClaimConsumer(ApiStruct, frozen=True):
    """An object for which a claim is reserved."""

    resource: str = ""
    name: str = ""


class ReportedDevice(msgspec.Struct, frozen=True):
    """An allocated device, by what identifies it on its node, as our driver and others report it."""

    node: str
    function: str = ""
    """The PCI address that a VM opens; empty for a device of containers and for an mdev."""
    uuid: str = ""


class ResourceClaimStatus(ApiStruct, frozen=True):
    allocation: ClaimAllocationStatus | None = None
    reserved_for: tuple[ClaimConsumer, ...] = ()
    devices: tuple[dict[str, Any], ...] = ()
    """What drivers report about allocated devices, as it is in the claim: entries of others are written back."""

    @property
    def results(self) -> tuple[AllocationResult, ...]:
        """The allocated devices of all drivers."""
        return self.allocation.devices.results if self.allocation else ()

    @property
    def reported(self) -> tuple[ReportedDevice, ...]:
        """The devices that the claim holds and whose driver says which they are. Admin access holds nothing."""
        held = {(each.driver, each.pool, each.device) for each in self.results if not each.admin_access}
        return tuple(
            # Drivers of GPUs name the pool by the node, and ours adds its suffix.
            ReportedDevice(entry["pool"].removesuffix(POOL_SUFFIX), _text(entry, "function"), _text(entry, "uuid"))
            for entry in self.devices
            if (entry.get("driver"), entry.get("pool"), entry.get("device")) in held
        )

    @property
    def pods(self) -> tuple[str, ...]:
        """The names of the pods that may use the claim. They are in its namespace."""
        return tuple(each.name for each in self.reserved_for if each.resource == "pods")


class ClaimObject(KubeObject, frozen=True):
    """A ResourceClaim, as each of its readers needs it."""

    status: ResourceClaimStatus = ResourceClaimStatus()


def _text(entry: dict[str, Any], field: str) -> str:
    """Return a word of what a driver reports; empty if it reports none, or in another form."""
    data = entry.get("data")
    found = data.get(field) if isinstance(data, dict) else None
    return found if isinstance(found, str) else ""
