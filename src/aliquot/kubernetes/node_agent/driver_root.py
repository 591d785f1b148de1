"""Where the driver's files are, as this process and as the host see them: a driver container comes and goes."""

from __future__ import annotations

import os

import msgspec

from aliquot.errors import AliquotError
from aliquot.hardware.nvml.binding import library_below

CONTAINER = "/run/nvidia/driver"
"""Where the GPU Operator's driver container shows its root directory to the host."""


class DriverLocation(msgspec.Struct, frozen=True):
    """``local_root`` is the driver's root as we see it, None for our own; ``host`` the same as the host sees it."""

    local_root: str | None = None
    host: str = "/"


def find_driver(host_root: str, requested: str) -> DriverLocation:
    """The first place with an NVML library: what was asked for, a driver container's root, the host itself; below
    ``host_root`` where the host is mounted there. Our own root where there is none: it will say what is missing.
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
