"""PCI functions as the bus shows them, with no driver needed."""

from __future__ import annotations

import msgspec


class PciFunction(msgspec.Struct, frozen=True):
    """One function. ``vendor_id`` and ``device_id``: four hex digits, lower case; ``class_id``: class and subclass
    (``0302``). ``vendor``, ``product`` and ``subclass`` are the names of pci.ids. ``physfn`` is the physical function's
    address where this is a virtual one. ``sriov``: it can have virtual functions (``sriov_vf_device`` is there and not
    0); ``virtual`` are their addresses in the lexical order of ``virtfn*``, ``total`` how many there can be. ``gpu``: a
    physical display function of NVIDIA's. ``numa`` is None where the machine has no nodes.
    """

    address: str
    vendor_id: str
    device_id: str
    class_id: str
    vendor: str = ""
    product: str = ""
    subclass: str = ""
    subsystem: str = ""
    iommu_group: int | None = None
    driver: str = ""
    numa: int | None = None
    physfn: str = ""
    sriov: bool = False
    total: int = 0
    virtual: tuple[str, ...] = ()
    gpu: bool = False

    @property
    def packed(self) -> str:
        """The ids as NVML packs them (``0x25B610DE``)."""
        return f"0x{self.device_id.upper()}{self.vendor_id.upper()}"
