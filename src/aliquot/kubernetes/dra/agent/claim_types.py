"""Claims with what was allocated to them, and the sources that the agent asks.

``ClaimSource`` reads claims from the API server, and ``DeviceFinder`` knows which device of a node has which name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from aliquot.core.model.inventory import Inventory
from aliquot.errors import BlockedError
from aliquot.kubernetes.dra.plugin.claim_service import ClaimReference


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
    pod_claim: str = ""
    """The pod's name for a claim that was made from a template."""


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
    """The PCI address of the GPU."""
    profile: str | None = None
    """None for the whole GPU."""
    start: int = 0
    """The first memory slice."""
    vm: str = ""
    """``vfio`` for the whole GPU for a VM, the short name of the type for a vGPU. Empty for containers."""


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
