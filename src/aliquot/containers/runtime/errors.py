"""Errors of container runtimes and of the choice of a device."""

from __future__ import annotations

from aliquot.errors import BlockedError


class RuntimeUnavailableError(BlockedError):
    """A container runtime is not installed, or its daemon does not answer."""

    code = "RUNTIME_AWAY"


class NoFreeDeviceError(BlockedError):
    """None of the requested devices is free."""

    code = "NO_FREE_DEVICE"


class BareIndexError(BlockedError):
    """The request names a whole GPU in MIG mode: a container would see none of its instances, or all of them."""

    code = "BARE_INDEX"
