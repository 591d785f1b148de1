"""PCI functions as the bus reports them, without a driver."""

from __future__ import annotations

import msgspec


class PciFunction(msgspec.Struct, frozen=True):
    """A PCI function. ``vendor``, ``product`` and ``subclass`` are names from pci.ids."""

    address: str
    vendor_id: str
    """Four hex digits in lower case. The same holds for ``device_id``."""
    device_id: str
    class_id: str
    """Class and subclass (``0302``)."""
    vendor: str = ""
    product: str = ""
    subclass: str = ""
    subsystem: str = ""
    iommu_group: int | None = None
    driver: str = ""
    numa: int | None = None
    """None if the host has no NUMA nodes."""
    physfn: str = ""
    """Address of the physical function if this is a virtual function."""
    sriov: bool = False
    """Whether it can have virtual functions (``sriov_vf_device`` exists and is not 0)."""
    total: int = 0
    """Largest possible number of virtual functions."""
    virtual: tuple[str, ...] = ()
    """Addresses of its virtual functions in the lexical order of ``virtfn*``."""
    interfaces: tuple[str, ...] = ()
    """Names of its network interfaces; none unless its network driver is bound."""
    uplink: str = ""
    """The bond or bridge that one of its interfaces is part of."""
    gpu: bool = False
    """Whether this is a physical display function from NVIDIA."""

    @property
    def packed(self) -> str:
        """The ids as NVML packs them (``0x25B610DE``)."""
        return f"0x{self.device_id.upper()}{self.vendor_id.upper()}"
