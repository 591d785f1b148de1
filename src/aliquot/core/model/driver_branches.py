"""Versions of NVIDIA's driver: how they compare, and which branch brought the functions that Aliquot calls. Pure.

Source of the functions' branches: nvml.h of CUDA 11.0 to 13.3 as go-nvml keeps it, and nvidia-ml-py 11.450 to 13.615.
"""

from __future__ import annotations

import re

FLOOR = 470
"""The oldest driver branch that Aliquot drives: before R470 a MIG device's UUID was not stable."""

PLACED_COMPUTE_INSTANCES = "nvmlGpuInstanceCreateComputeInstanceWithPlacement"

FIRST_WITH = {
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
    "nvmlDeviceGetGpuFabricInfoV": 550,
    "nvmlDeviceGetPciInfoExt": 550,
    "nvmlDeviceGetVgpuHeterogeneousMode": 550,
    "nvmlDeviceSetVgpuHeterogeneousMode": 550,
}
"""Functions that Aliquot calls and that the oldest branch lacks, by the first branch that has each."""


def numbers(version: str) -> tuple[int, ...]:
    """Return a driver version as numbers that compare; a branch name (``R525``) too, and what stands before another
    suffix (``460.73.01-grid``). Empty if there is nothing to compare.
    """
    found = re.match(r"R?(\d{1,6}(?:\.\d{1,6})*)", version, re.ASCII)
    return tuple(map(int, found[1].split("."))) if found else ()


def older(version: str, minimum: str | None) -> bool:
    """Return whether a version is known and older than a known minimum."""
    have, want = numbers(version), numbers(minimum or "")
    return bool(have and want) and have < want


def lacks(version: str, function: str) -> bool:
    """Return whether a driver of a known version is too old for an NVML function."""
    return older(version, str(FIRST_WITH.get(function, 0)))
