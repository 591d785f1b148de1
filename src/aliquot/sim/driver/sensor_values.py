"""Values that a GPU reports besides its geometry, from the catalog or as a stated estimate.

Clocks, power and temperatures are those of an idle board. Aliquot does not depend on them, but monitors read them.
"""

from __future__ import annotations

import re

from aliquot.core.model import catalog
from aliquot.core.model.catalog import ComputeProfile, Family, Profile

_MEMORY_MIB = {
    "Tesla T4": 15360,
    "NVIDIA A2": 15356,
    "NVIDIA A10": 23028,
    "NVIDIA A16": 15356,
    "NVIDIA A40": 46068,
    "NVIDIA L4": 23034,
    "NVIDIA L40": 46068,
    "NVIDIA L40S": 46068,
    "NVIDIA RTX A6000": 49140,
    "NVIDIA RTX A5000": 24564,
}
"""The total that NVML reports on GPUs without MIG (public captures)."""

_GENERATIONS = {
    # architecture: NVML number, compute capability, power limit in mW, highest SM clock in MHz, PCIe generation
    "volta": (5, (7, 0), 300_000, 1530, 3),
    "turing": (6, (7, 5), 70_000, 1590, 3),
    "ampere": (7, (8, 0), 400_000, 1410, 4),
    "ada": (8, (8, 9), 350_000, 2520, 4),
    "hopper": (9, (9, 0), 700_000, 1980, 5),
    "blackwell": (10, (10, 0), 1_000_000, 1965, 5),
}
_CAPABILITIES = {
    **dict.fromkeys(("NVIDIA A2", "NVIDIA A10", "NVIDIA A16", "NVIDIA A40"), (8, 6)),
    **dict.fromkeys(("NVIDIA RTX A6000", "NVIDIA RTX A5000"), (8, 6)),
    **dict.fromkeys(("NVIDIA B300 SXM6 AC", "NVIDIA GB300"), (10, 3)),
    "Thor iGPU": (11, 0),
}
"""For generations with several capabilities (NVIDIA's list of CUDA GPUs). The RTX boards of Blackwell are all 12.0."""

_UNKNOWN_GENERATION = (0xFFFFFFFF, (0, 0), 250_000, 1500, 4)

_BRANDS = {"Tesla": 2, "Quadro": 1}
_BRAND_NVIDIA = 14


def brand(product: str) -> int:
    """Return the NVML_BRAND_* of a product."""
    return _BRANDS.get(product.split(" ")[0], _BRAND_NVIDIA)


def total_memory_mib(product: str, device: catalog.Device) -> int:
    """Return the total memory in MiB from the product's row, else from its name, else 24 GiB as an estimate."""
    if device.mig_family is not None:
        family = catalog.family(device.mig_family)
        for row in family.products:
            if row.name.partition(" (")[0] == product and row.memory_mib:
                return row.memory_mib
        whole = max((p.memory_mib or 0 for p in family.profiles), default=0)
        if whole:
            return whole
    named = re.search(r"(\d+)GB", product)
    return _MEMORY_MIB.get(product) or (int(named.group(1)) * 1024 if named else 24576)


def generation(architecture: str) -> tuple[int, tuple[int, int], int, int, int]:
    """Return NVML architecture number, compute capability, power limit (mW), top SM clock (MHz) and PCIe generation."""
    return _GENERATIONS.get(architecture, _UNKNOWN_GENERATION)


def compute_capability(product: str, architecture: str) -> tuple[int, int]:
    """Return the CUDA compute capability, major and minor; (0, 0) if unknown."""
    if architecture == "blackwell" and " RTX " in product:
        return 12, 0
    return _CAPABILITIES.get(product, generation(architecture)[1])


def instance_memory_mib(family: Family, profile: Profile, total_mib: int) -> int:
    """Return the profile's memory in MiB, else its share of the GPU in whole 64 MiB steps, as in
    every captured value.
    """
    if profile.memory_mib:
        return profile.memory_mib
    return total_mib * profile.size // family.memory_slices // 64 * 64


def instance_sm(family: Family, profile: Profile) -> int:
    """Return the SMs of a GPU instance, else an even share, rounded down to an even number (SMs come in pairs)."""
    if profile.sm is not None:
        return profile.sm
    return (family.sm_total or 2 * family.compute_slices) * profile.compute_slices // family.compute_slices // 2 * 2


def compute_sm(family: Family, profile: Profile, compute: ComputeProfile) -> int:
    if compute.sm is not None:
        return compute.sm
    return instance_sm(family, profile) * compute.compute_slices // profile.compute_slices // 2 * 2


METRICS: dict[str, int] = {
    "DeviceGetPerformanceState": 0,
    "DeviceGetComputeMode": 0,
    "DeviceGetDisplayMode": 0,
    "DeviceGetDisplayActive": 0,
    "DeviceGetTemperature": 34,
    "DeviceGetPowerState": 0,
    "DeviceGetPowerManagementMode": 1,
    "DeviceGetPcieThroughput": 0,
    "DeviceGetCurrPcieLinkWidth": 16,
    "DeviceGetMaxPcieLinkWidth": 16,
    "DeviceGetPcieReplayCounter": 0,
    "DeviceGetMultiGpuBoard": 0,
    "DeviceGetTotalEnergyConsumption": 1_000_000,
    "DeviceGetCurrentClocksEventReasons": 1,
    "DeviceGetSupportedClocksEventReasons": 0x1FF,
    "DeviceGetTotalEccErrors": 0,
    "DeviceGetAccountingMode": 0,
    "DeviceGetMemoryBusWidth": 5120,
    "DeviceGetSupportedEventTypes": 0x18,
}
"""Metrics that do not depend on the GPU: idle, default compute mode, no display, 16 lanes."""


def metric(name: str, architecture: str, argument: int = 0) -> int | None:
    """Return one metric of an idle board, or None if this board does not have it (fans, for example)."""
    _number, _capability, limit, clock, pcie = generation(architecture)
    match name:
        case "DeviceGetPowerUsage":
            return limit // 8
        case "DeviceGetEnforcedPowerLimit" | "DeviceGetPowerManagementLimit" | "DeviceGetPowerManagementDefaultLimit":
            return limit
        case "DeviceGetClockInfo" | "DeviceGetApplicationsClock" | "DeviceGetDefaultApplicationsClock":
            return 1215 if argument == 2 else 210
        case "DeviceGetMaxClockInfo":
            return 1215 if argument == 2 else clock
        case "DeviceGetCurrPcieLinkGeneration" | "DeviceGetMaxPcieLinkGeneration":
            return pcie
        case "DeviceGetTemperatureThreshold":
            return {0: 92, 1: 89}.get(argument, 85)
        case _:
            return METRICS.get(name)
