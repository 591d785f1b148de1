"""Virtual functions of a GPU: their limit, their number and their addresses."""

from __future__ import annotations

import msgspec

from aliquot.hardware.kernel import pci as bus
from aliquot.hardware.kernel.sysfs import list_names, read_count, read_number, read_optional
from aliquot.hardware.kernel_files import KernelFiles


class VirtualFunctionLink(msgspec.Struct, frozen=True):
    """A virtual function and the number of its ``virtfnK`` link."""

    number: int
    pci: str


def total(files: KernelFiles, pci: str) -> int:
    """Return the maximum number of virtual functions of a GPU; 0 without SR-IOV, or if its driver does not use it (a
    Tesla T4 has the capability, but no ``sriov_vf_device``).
    """
    limit = read_count(files, bus.attribute(pci, "sriov_totalvfs"))
    if limit and read_optional(files, bus.attribute(pci, "sriov_vf_device")) in ("0", "0000", "0x0"):
        return 0
    return limit


def count(files: KernelFiles, pci: str) -> int:
    """Return the number of enabled virtual functions."""
    return read_count(files, bus.attribute(pci, "sriov_numvfs"))


def function_addresses(files: KernelFiles, pci: str, limit: int) -> tuple[str, ...]:
    """Return the addresses that virtual functions have or will have, by number. Offset and stride
    count in routing ids.
    """
    offset = read_number(files, bus.attribute(pci, "sriov_offset"))
    stride = read_number(files, bus.attribute(pci, "sriov_stride"))
    if offset is None or stride is None:
        return ()
    domain, base, device, function = (int(part, 16) for part in pci.replace(".", ":").split(":"))
    ids = [(base << 8 | device << 3 | function) + offset + k * stride for k in range(limit)]
    return tuple(f"{domain:04x}:{i >> 8:02x}:{i >> 3 & 0x1F:02x}.{i & 7}" for i in ids)


def links(files: KernelFiles, pci: str) -> tuple[VirtualFunctionLink, ...]:
    """Return the existing virtual functions, in the order of their numbers (``virtfn10`` after ``virtfn9``)."""
    numbers = [name[6:] for name in list_names(files, f"{bus.DEVICES}/{pci}") if name.startswith("virtfn")]
    found = []
    for k in sorted(int(n) for n in numbers if n.isdigit()):
        address = files.link(bus.attribute(pci, f"virtfn{k}")).rpartition("/")[2]
        found.append(VirtualFunctionLink(k, address))
    return tuple(found)
