"""What can go wrong between us and a container runtime."""

from __future__ import annotations

from aliquot.errors import BlockedError


class RuntimeUnavailableError(BlockedError):
    """A container runtime is not installed, or its daemon does not answer."""

    code = "RUNTIME_AWAY"


class NoFreeDeviceError(BlockedError):
    """Nothing that was asked for is free."""

    code = "NO_FREE_DEVICE"


class BareIndexError(BlockedError):
    """A whole GPU in MIG mode was named: a container would see none of its instances, or all of them."""

    code = "BARE_INDEX"
