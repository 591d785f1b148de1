"""Location of the driver's files for this process and for the host. A driver container may come and go."""

from __future__ import annotations

import os

import msgspec

from aliquot.errors import AliquotError
from aliquot.hardware.nvml.binding import library_below

CONTAINER = "/run/nvidia/driver"
"""Directory on the host with the root of the GPU Operator's driver container."""


class DriverLocation(msgspec.Struct, frozen=True):
    """Root directory of the driver."""

    local_root: str | None = None
    """Path in this process; None for its own root."""
    host: str = "/"
    """Path on the host."""


def find_driver(host_root: str, requested: str) -> DriverLocation:
    """Find the first place with an NVML library: the requested one, a driver container's root, or the host.

    Paths are below ``host_root`` if the host is mounted there. If there is none, returns the process's own root, whose
    use reports what is missing.
    """
    for place in dict.fromkeys(filter(None, (requested, CONTAINER, "/" if host_root else ""))):
        local_root = os.path.normpath(host_root + place) if host_root else place
        if local_root == "/":
            break
        try:
            library_below(local_root)
        except AliquotError:
            continue
        return DriverLocation(local_root, place)
    return DriverLocation()


def driver_root() -> str:
    """Return where a command of this process finds the driver: ``ALIQUOT_DRIVER_ROOT``, or what an agent finds.

    A command that an administrator runs in the agent's container has the container's variables.
    """
    environment = os.environ.get
    chosen = environment("ALIQUOT_DRIVER_ROOT")
    if chosen:
        return chosen
    host_root = environment("HOST_ROOT_MOUNT", "").rstrip("/")
    return find_driver(host_root, environment("NVIDIA_DRIVER_ROOT", "")).local_root or "/"
