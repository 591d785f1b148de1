"""Types of claims that the agent and the gRPC service exchange, and the sources that the agent asks.

``ClaimService`` is called by the service that kubelet talks to. ``ClaimSource`` reads claims from the API server, and
``DeviceFinder`` knows which device of a node has which name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from aliquot.core.model.inventory import Inventory
from aliquot.errors import AliquotError, BlockedError


class ClaimReference(msgspec.Struct, frozen=True):
    """A ResourceClaim as kubelet names it."""

    uid: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"claim {self.namespace}/{self.name}"


class PreparedDevice(msgspec.Struct, frozen=True):
    """A device that is ready for the containers of a claim."""

    requests: tuple[str, ...]
    pool: str
    device: str
    cdi_ids: tuple[str, ...]


class PreparedClaim(msgspec.Struct, frozen=True):
    """A claim whose devices are ready."""

    uid: str
    devices: tuple[PreparedDevice, ...]


class ClaimService(Protocol):
    """Prepares and releases claims. Both answers have every uid of the call."""

    async def prepare(self, claims: Sequence[ClaimReference]) -> Mapping[str, PreparedClaim | AliquotError]: ...

    async def unprepare(self, claims: Sequence[ClaimReference]) -> Mapping[str, AliquotError | None]: ...


class AllocatedDevice(msgspec.Struct, frozen=True):
    """A device that the scheduler allocated to a claim."""

    requests: tuple[str, ...]
    pool: str
    device: str
    shared: bool = False
    """True for admin access: the device may belong to another claim, and is not held."""


class AllocatedClaim(msgspec.Struct, frozen=True):
    """A claim with its devices of our driver on this node."""

    reference: ClaimReference
    devices: tuple[AllocatedDevice, ...]


class ClaimSource(Protocol):
    """Reads claims."""

    async def allocation(self, reference: ClaimReference) -> AllocatedClaim:
        """Return the claim with exactly this uid.

        Raises ClaimMismatchError if there is none or it has no device of ours, ApiError if it cannot be read.
        """
        ...

    def is_known_to_differ(self, claim: AllocatedClaim) -> bool:
        """Report whether the last known state of the claim has another allocation. Sends no request."""
        ...


class DeviceLocation(msgspec.Struct, frozen=True):
    """The place of a device on its node."""

    gpu: str
    """The UUID of the GPU."""
    profile: str | None = None
    """None for the whole GPU."""
    start: int = 0
    """The first memory slice."""


DeviceFinder = Callable[[Inventory, str, str], DeviceLocation | None]
"""Returns the place of the device with this pool and name; None if the node never has such a device."""


class ClaimMismatchError(BlockedError):
    """Kubelet named a ResourceClaim that the cluster does not have in this form."""

    code = "CLAIM_MISMATCH"


class UnknownClaimedDeviceError(BlockedError):
    """A ResourceClaim has a device that this node does not have."""

    code = "NO_CLAIMED_DEVICE"


class ForeignInstanceError(BlockedError):
    """An instance that was not created for a claim takes the room of a device that a claim has."""

    code = "FOREIGN_INSTANCE"


class OtherDriverError(BlockedError):
    """Another DRA driver of the same name serves this node."""

    code = "OTHER_DRA_DRIVER"
