"""The location of a simulated GPU in its host: NUMA node, PCI class, NVLink fabric. Estimates from public listings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from aliquot.sim.codes import NOT_SUPPORTED, NvmlRefusalError
from aliquot.sim.driver.gpu import SimGpu
from aliquot.sim.template import name_uuid

PER_PROCESSOR = 4
"""GPUs per CPU in the simulated topology."""

VGA = (3, 0)
CONTROLLER_3D = (3, 2)

_RACK_SCALE = ("NVIDIA GB200", "NVIDIA GB300")
_SWITCHED = ("NVIDIA H100 80GB HBM3", "NVIDIA H800", "NVIDIA H200", "NVIDIA B200", "NVIDIA B300 SXM6 AC")
_COMPLETED = 3
_BASEBOARD = 8
"""GPUs of the baseboards that have NVSwitches; baseboards of four link their GPUs directly."""
_SWITCHES = {
    "NVIDIA A100-SXM4": 6,
    "NVIDIA A800-SXM4": 6,
    "NVIDIA H100 80GB HBM3": 4,
    "NVIDIA H800": 4,
    "NVIDIA H200": 4,
}
"""The number of NVSwitches that are PCI functions on a baseboard; Blackwell boards have none (HGX data sheets)."""


class Fabric(NamedTuple):
    """NVML's fabric information: registration ``state`` (3 is completed), return code ``status``, clique and cluster
    UUID.
    """

    state: int
    status: int
    clique: int
    cluster: str


def numa_node(gpu: SimGpu) -> int:
    return gpu.state.index // PER_PROCESSOR


def pci_class(gpu: SimGpu) -> tuple[int, int]:
    """Return base class and subclass: boards with display outputs are VGA, the others 3D controllers."""
    name = gpu.state.product
    shows = "Workstation" in name or "Active" in name or name.startswith(("NVIDIA RTX A", "NVIDIA RTX PRO 5000"))
    return VGA if shows else CONTROLLER_3D


def nvswitches(gpus: Sequence[SimGpu]) -> tuple[str, ...]:
    """Return the addresses of a host's NVSwitches, after its last GPU."""
    products = [gpu.state.product for gpu in gpus]
    found = next((n for name, n in _SWITCHES.items() if products and products[0].startswith(name)), 0)
    if len(products) < _BASEBOARD or len(set(products)) > 1 or "PCIe" in products[0] or "NVL" in products[0]:
        return ()
    return tuple(f"0000:f{number}:00.0" for number in range(found))


def fabric(gpu: SimGpu) -> Fabric:
    """Return the fabric of a GPU. Rack-scale systems share one cluster; the switch of a single host has the all-zero
    one. Raises NOT_SUPPORTED for GPUs without a switch.
    """
    if gpu.state.product in _RACK_SCALE:
        return Fabric(_COMPLETED, 0, 1, name_uuid("nvlink domain"))
    if gpu.state.product in _SWITCHED:
        return Fabric(_COMPLETED, 0, 0, "00000000-0000-0000-0000-000000000000")
    raise NvmlRefusalError(NOT_SUPPORTED)
