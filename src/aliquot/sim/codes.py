"""NVML return codes and limits of the driver model (nvml.h)."""

from __future__ import annotations

SUCCESS = 0
UNINITIALIZED = 1
INVALID_ARGUMENT = 2
NOT_SUPPORTED = 3
NO_PERMISSION = 4
NOT_FOUND = 6
DRIVER_NOT_LOADED = 9
TIMEOUT = 10
FUNCTION_NOT_FOUND = 13
GPU_IS_LOST = 15
RESET_REQUIRED = 16
LIB_RM_VERSION_MISMATCH = 18
IN_USE = 19
INSUFFICIENT_RESOURCES = 23
UNKNOWN = 999

MAX_COMPUTE_INSTANCES = 8
"""Compute instances per GPU instance: ids 0 to 7."""

COMPUTE_PROFILE_INDEXES = 9
"""Number of the library's compute instance profile indexes: 1, 2, 3, 4, 7, 8, 6 slices, 1-slice
rev1, 7-slice NVLink.
"""


class NvmlRefusalError(Exception):
    """The driver refuses a call. ``code`` is NVML's return code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code
