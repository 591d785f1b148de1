"""NVIDIA driver versions: how they compare, and which branch introduced the functions that Aliquot calls. Pure.

Sources: nvml.h of CUDA 11.0 to 13.3 as archived in go-nvml, and nvidia-ml-py 11.450 to 13.615.
"""

from __future__ import annotations

import re

FLOOR = 470
"""The oldest driver branch that Aliquot supports. Before R470 the UUID of a MIG device was not stable."""

SET_SCHEDULER = "nvmlDeviceSetVgpuSchedulerState"
SET_INSTANCE_SCHEDULER = "nvmlGpuInstanceSetVgpuSchedulerState"
PLACED_COMPUTE_INSTANCES = "nvmlGpuInstanceCreateComputeInstanceWithPlacement"

FIRST_WITH = {
    "nvmlDeviceGetAddressingMode": 580,
    "nvmlDeviceGetComputeRunningProcesses_v3": 510,
    "nvmlDeviceGetGraphicsRunningProcesses_v3": 510,
    "nvmlDeviceGetGpuInstanceProfileInfoV": 510,
    "nvmlGpmMetricsGet": 520,
    "nvmlGpmQueryDeviceSupport": 520,
    "nvmlGpmSampleAlloc": 520,
    "nvmlGpmSampleFree": 520,
    "nvmlGpmSampleGet": 520,
    PLACED_COMPUTE_INSTANCES: 525,
    "nvmlGpuInstanceGetComputeInstancePossiblePlacements": 525,
    "nvmlGpmMigSampleGet": 525,
    "nvmlDeviceGetVgpuSchedulerState": 525,
    SET_SCHEDULER: 525,
    "nvmlDeviceGetGpuFabricInfoV": 550,
    "nvmlDeviceGetPciInfoExt": 550,
    "nvmlDeviceGetVgpuHeterogeneousMode": 550,
    "nvmlDeviceSetVgpuHeterogeneousMode": 550,
    "nvmlVgpuInstanceGetLicenseInfo_v2": 510,
    "nvmlGpuInstanceGetVgpuHeterogeneousMode": 575,
    "nvmlGpuInstanceSetVgpuHeterogeneousMode": 575,
    "nvmlGpuInstanceGetVgpuSchedulerState": 575,
    SET_INSTANCE_SCHEDULER: 575,
}
"""Functions that Aliquot calls and that the oldest branch lacks, with the first branch that has each."""


def numbers(version: str) -> tuple[int, ...]:
    """Return a driver version as a tuple of numbers that can be compared. Empty if there are none.

    Accepts a branch name (``R525``), and ignores a suffix (``460.73.01-grid``).
    """
    found = re.match(r"R?(\d{1,6}(?:\.\d{1,6})*)", version, re.ASCII)
    return tuple(map(int, found[1].split("."))) if found else ()


def older(version: str, minimum: str | None) -> bool:
    """Report whether a version is known and older than a known minimum."""
    have, want = numbers(version), numbers(minimum or "")
    return bool(have and want) and have < want


def lacks(version: str, function: str) -> bool:
    """Report whether a driver of a known version is too old for an NVML function."""
    return older(version, str(FIRST_WITH.get(function, 0)))
