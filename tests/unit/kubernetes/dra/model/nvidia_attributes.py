"""Attributes and capacities of NVIDIA's driver, as read in its source.

kubernetes-sigs/dra-driver-nvidia-gpu 95932046683719c43b6a0dd9613c2e5aad5d6703 (2026-08-07, VERSION v0.5.0-dev):
cmd/gpu-kubelet-plugin/deviceinfo.go, mig.go, partitions.go and vendor/k8s.io/dynamic-resource-allocation.
"""

from __future__ import annotations

WHOLE, MIG, BOTH = {"gpu"}, {"mig"}, {"gpu", "mig"}

ATTRIBUTES: dict[str, tuple[str, set[str]]] = {
    "type": ("string", BOTH),
    "uuid": ("string", WHOLE),  # also of static MIG devices; ours are all dynamic
    "parentUUID": ("string", MIG),
    "profile": ("string", MIG),
    "productName": ("string", BOTH),
    "brand": ("string", BOTH),
    "architecture": ("string", BOTH),
    "cudaComputeCapability": ("version", BOTH),
    "driverVersion": ("version", BOTH),
    "cudaDriverVersion": ("version", BOTH),
    "addressingMode": ("string", BOTH),
    "resource.kubernetes.io/pciBusID": ("string", BOTH),
    "resource.kubernetes.io/pcieRoot": ("string", BOTH),
    "resource.kubernetes.io/numaNode": ("int", BOTH),
}
"""Type, and the devices that have it."""

VFIO_ATTRIBUTES = {"type": "string", "uuid": "string", "deviceID": "string", "vendorID": "string"}
"""Attributes of a whole GPU for a VM that others lack, or of other kind. ``iommuFDEnabled`` is not offered."""

NOT_OFFERED = {"gpuModuleID", "partition1", "partition2", "partition4", "partition8"}
"""Attributes of Fabric Manager partitions, behind a feature gate."""

CAPACITIES = {"memory", "multiprocessors", "copyEngines", "decoders", "encoders", "jpegEngines", "ofaEngines"}
OWN = {"aliquot.dev/placementStart": "int", "aliquot.dev/placementSize": "int", "aliquot.dev/warm": "bool"}
