"""What labels, device plugins and metrics say about GPUs beside their geometry: figures that no plan depends on.

They are read apart from the inventory, so that a plan does not pay for them.
"""

from __future__ import annotations

import msgspec


class GpuFacts(msgspec.Struct, frozen=True):
    """One physical GPU. ``memory_mib`` is the total that the driver reports, 0 where it does not;
    ``compute_capability`` (major, minor), (0, 0) where it does not;
    ``numa_node`` None where the machine has none; ``display`` says that its PCI class is VGA (0x0300) rather than 3D
    controller (0x0302); ``clique`` is ``<cluster uuid>.<clique id>`` where it is attached to an NVLink fabric;
    ``vgpu`` says that this machine is a virtual one and the GPU a share of its host's.
    """

    pci: str
    memory_mib: int
    compute_capability: tuple[int, int]
    numa_node: int | None = None
    display: bool = False
    clique: str = ""
    vgpu: bool = False


class MigDevice(msgspec.Struct, frozen=True):
    """One MIG device (a compute instance in a GPU instance), as NVML's device attributes tell it. ``profile`` is the
    printed name, ``1g.5gb`` or ``1c.3g.20gb``; slices and engines are counts, -1 where nobody says. ``index`` is its
    number on the GPU as ``nvidia-smi -L`` shows it: there may be holes.
    """

    uuid: str
    gpu: str
    instance: int
    compute_instance: int
    profile: str
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


class Facts(msgspec.Struct, frozen=True):
    """A node. ``cuda`` is the newest CUDA version that the driver serves (major, minor); ``host_product`` the product
    name that the firmware gives, "" where there is none.
    """

    driver: str
    cuda: tuple[int, int]
    gpus: tuple[GpuFacts, ...]
    mig_devices: tuple[MigDevice, ...] = ()
    host_product: str = msgspec.field(default="", name="machine")

    def gpu(self, pci: str) -> GpuFacts:
        """The GPU at a PCI address. Raises KeyError."""
        for gpu in self.gpus:
            if gpu.pci == pci:
                return gpu
        raise KeyError(pci)
