"""Where a simulated GPU is in its machine: NUMA node, PCI class, NVLink fabric. Estimates after public listings."""

from __future__ import annotations

from typing import NamedTuple

from aliquot.sim.codes import NOT_SUPPORTED, Refused
from aliquot.sim.driver.gpu import SimGpu
from aliquot.sim.template import name_uuid

PER_PROCESSOR = 4
"""GPUs beside one processor, as in the topology that the simulator tells."""

VGA = (3, 0)
CONTROLLER_3D = (3, 2)

_RACK_SCALE = ("NVIDIA GB200", "NVIDIA GB300")
_SWITCHED = ("NVIDIA H100 80GB HBM3", "NVIDIA H800", "NVIDIA H200", "NVIDIA B200", "NVIDIA B300 SXM6 AC")
_COMPLETED = 3


class Fabric(NamedTuple):
    """NVML's fabric answer: registration ``state`` (3: completed), return code ``status``, clique and cluster UUID."""

    state: int
    status: int
    clique: int
    cluster: str


def numa_node(gpu: SimGpu) -> int:
    return gpu.state.index // PER_PROCESSOR


def pci_class(gpu: SimGpu) -> tuple[int, int]:
    """Base class and subclass: boards with display outputs are VGA, the others 3D controllers."""
    name = gpu.state.product
    shows = "Workstation" in name or "Active" in name or name.startswith(("NVIDIA RTX A", "NVIDIA RTX PRO 5000"))
    return VGA if shows else CONTROLLER_3D


def fabric(gpu: SimGpu) -> Fabric:
    """Rack-scale systems share one cluster; the switch of a single machine has the all-zero one. Raises NOT_SUPPORTED
    for GPUs on no switch.
    """
    if gpu.state.product in _RACK_SCALE:
        return Fabric(_COMPLETED, 0, 1, name_uuid("nvlink domain"))
    if gpu.state.product in _SWITCHED:
        return Fabric(_COMPLETED, 0, 0, "00000000-0000-0000-0000-000000000000")
    raise Refused(NOT_SUPPORTED)
