"""Facts about GPUs for labels, device plugins and metrics, besides their geometry.

No plan depends on them. They are read apart from the inventory, so that a plan does not pay for them.
"""

from __future__ import annotations

import msgspec

BRANDS = {
    1: "Quadro",
    2: "Tesla",
    3: "NVS",
    4: "Grid",
    5: "GeForce",
    6: "Titan",
    7: "NvidiaVApps",
    8: "NvidiaVPC",
    9: "NvidiaVCS",
    10: "NvidiaVWS",
    11: "NvidiaCloudGaming",
    12: "QuadroRTX",
    13: "NvidiaRTX",
    14: "Nvidia",
    15: "GeForceRTX",
    16: "TitanRTX",
}
"""NVML_BRAND_* of nvml.h, in the spelling of NVIDIA's DRA driver (go-nvlib, GetBrandAsString)."""


class GpuFacts(msgspec.Struct, frozen=True):
    """Facts about one physical GPU."""

    pci: str
    memory_mib: int
    """Total that the driver reports in MiB, 0 if unknown."""
    compute_capability: tuple[int, int]
    """(major, minor), or (0, 0) if unknown."""
    numa_node: int | None = None
    """None if the host has no NUMA nodes."""
    display: bool = False
    """Whether the PCI class is VGA (0x0300) and not 3D controller (0x0302)."""
    clique: str = ""
    """``<cluster uuid>.<clique id>`` if the GPU is attached to an NVLink fabric."""
    vgpu: bool = False
    """Whether this node is a VM and the GPU is a vGPU of its host."""
    brand: str = ""
    """``Nvidia``, ``Tesla``, ``Quadro`` and so on, as NVIDIA's DRA driver spells it; empty if unknown."""
    pcie_root: str = ""
    """The PCIe root complex, ``pci0000:00``; empty if unknown."""
    addressing_mode: str = ""
    """``HMM``, ``ATS`` or ``None`` on platforms with coherent memory, empty on others."""


class MigDevice(msgspec.Struct, frozen=True):
    """A MIG device (a compute instance in a GPU instance), as NVML's device attributes describe it.

    Slices and engines are counts, -1 if unknown.
    """

    uuid: str
    gpu: str
    instance: int
    compute_instance: int
    profile: str
    """The printed name, ``1g.5gb`` or ``1c.3g.20gb``."""
    memory_mib: int
    multiprocessors: int
    gi_slices: int
    ci_slices: int
    copy: int = 0
    decoder: int = 0
    encoder: int = 0
    jpeg: int = 0
    ofa: int = 0
    index: int = -1
    """Its number on the GPU as ``nvidia-smi -L`` shows it. Numbers may be missing in between."""


class Facts(msgspec.Struct, frozen=True):
    """Facts about a node."""

    driver: str
    cuda: tuple[int, int]
    """The newest CUDA version that the driver supports (major, minor)."""
    gpus: tuple[GpuFacts, ...]
    mig_devices: tuple[MigDevice, ...] = ()
    host_product: str = msgspec.field(default="", name="machine")
    """The product name that the firmware reports, "" if there is none."""

    def gpu(self, pci: str) -> GpuFacts:
        """Return the GPU at a PCI address. Raises KeyError if there is none."""
        for gpu in self.gpus:
            if gpu.pci == pci:
                return gpu
        raise KeyError(pci)
