"""Addresses and identities on the simulated PCI bus, in the formats of the kernel."""

from __future__ import annotations

from functools import cache

import msgspec

from aliquot.core.model import vgpu_types as vgpu
from aliquot.core.model.vgpu_types import VgpuTable
from aliquot.sim.driver import topology as place
from aliquot.sim.driver.gpu import SimGpu
from aliquot.sim.state import FunctionState, GpuState, NeighbourState, NodeState

NVIDIA = "10de"
_FIRST_FUNCTION = 4
"""The offset of the first virtual function on boards without a public listing. It is that of all listed boards except
RTX PRO 6000.
"""


def table(gpu: GpuState) -> VgpuTable | None:
    """Return the types of this board, None if it is unknown."""
    return _table(gpu.pci_device, gpu.subsystem)


@cache
def _table(pci_device: str, subsystem: str) -> VgpuTable | None:
    return vgpu.table(pci_device, subsystem)


def total_functions(gpu: GpuState) -> int:
    """Return sriov_totalvfs: 0 without SR-IOV, or inside a VM. If it is not published, it is the minimum that the
    board's types need (an estimate).
    """
    found = table(gpu)
    if found is None or not found.sriov or gpu.guest:
        return 0
    return found.total_vfs or found.at_least


def offset(gpu: GpuState) -> int:
    """Return sriov_offset: the distance of the first virtual function from the physical one."""
    found = table(gpu)
    return found.first_vf if found is not None and found.first_vf is not None else _FIRST_FUNCTION


def function_address(gpu: GpuState, number: int) -> str:
    """Return the address of a virtual function: its routing id is the physical function's plus offset and number."""
    return _behind(gpu.pci, offset(gpu) + number)


def function_number(gpu: GpuState, address: str) -> int | None:
    """Return the number of the virtual function at an address, None if this GPU has none there."""
    return _numbers(gpu.pci, offset(gpu), total_functions(gpu)).get(address)


@cache
def _numbers(address: str, first: int, total: int) -> dict[str, int]:
    return {_behind(address, first + number): number for number in range(total)}


@cache
def _behind(address: str, distance: int) -> str:
    domain, bus, rest = address.split(":")
    device, _, function = rest.partition(".")
    routing = (int(bus, 16) << 8 | int(device, 16) << 3 | int(function)) + distance
    return f"{domain}:{routing >> 8:02x}:{routing >> 3 & 31:02x}.{routing & 7}"


def neighbours(gpu: GpuState) -> tuple[NeighbourState, ...]:
    """Return the functions of other vendors behind the root port of a GPU."""
    return (*((gpu.neighbour,) if gpu.neighbour is not None else ()), *gpu.others)


def neighbour_address(gpu: GpuState, state: NeighbourState) -> str:
    return state.address or gpu.pci[:-1] + str(int(gpu.pci[-1]) + 1)


def port_address(gpu: GpuState) -> str:
    """Return the root port above a GPU."""
    return f"{gpu.pci[:4]}:00:{1 + gpu.index // 8:02x}.{gpu.index % 8}"


def port_folder(gpu: GpuState) -> str:
    """Return the directory of that root port, below /sys."""
    return f"devices/pci{gpu.pci[:4]}:00/{port_address(gpu)}"


def device_folder(gpu: GpuState, address: str) -> str:
    """Return the directory of a function behind it, below /sys."""
    return f"{port_folder(gpu)}/{address}"


class PciIdentity(msgspec.Struct, frozen=True):
    """The attribute values of one PCI function."""

    address: str
    vendor: str
    device: str
    klass: str
    sub_vendor: str = "0000"
    sub_device: str = "0000"
    revision: str = "a1"
    virtual: bool = False

    @property
    def modalias(self) -> str:
        ids = f"v{'0000' + self.vendor.upper()}d{'0000' + self.device.upper()}"
        subs = f"sv{'0000' + self.sub_vendor.upper()}sd{'0000' + self.sub_device.upper()}"
        k = self.klass.upper()
        return f"pci:{ids}{subs}bc{k[:2]}sc{k[2:4]}i{k[4:]}"

    def uevent(self, driver: str) -> str:
        """Return the text that udev and libvirt read."""
        lines = [f"DRIVER={driver}"] if driver else []
        lines += [
            f"PCI_CLASS={int(self.klass, 16):X}",
            f"PCI_ID={self.vendor.upper()}:{self.device.upper()}",
            f"PCI_SUBSYS_ID={self.sub_vendor.upper()}:{self.sub_device.upper()}",
            f"PCI_SLOT_NAME={self.address}",
            f"MODALIAS={self.modalias}",
        ]
        return "\n".join(lines) + "\n"

    @property
    def config(self) -> str:
        """The first 64 bytes of configuration space, one character each. A virtual function returns ffff for its ids;
        only the attributes have them.
        """
        raw = bytearray(64)
        ids = ("ffff", "ffff") if self.virtual else (self.vendor, self.device)
        raw[0:2] = int(ids[0], 16).to_bytes(2, "little")
        raw[2:4] = int(ids[1], 16).to_bytes(2, "little")
        raw[4:8] = (0x00100007).to_bytes(4, "little")
        raw[8] = int(self.revision, 16)
        raw[9:12] = int(self.klass, 16).to_bytes(3, "little")
        raw[0x2C:0x2E] = int(self.sub_vendor, 16).to_bytes(2, "little")
        raw[0x2E:0x30] = int(self.sub_device, 16).to_bytes(2, "little")
        return raw.decode("latin-1")


def _device_id(gpu: GpuState) -> str:
    return gpu.pci_device.lower().removeprefix("0x")[:4]


def physical(gpu: SimGpu) -> PciIdentity:
    state = gpu.state
    base, sub = place.pci_class(gpu)
    board = state.subsystem.lower().removeprefix("0x")
    return PciIdentity(state.pci, NVIDIA, _device_id(state), f"{base:02x}{sub:02x}00", board[4:8], board[:4])


def virtual(gpu: SimGpu, function: FunctionState) -> PciIdentity:
    """Return the identity of a virtual function: the device id and class of its GPU, and no board
    id (captured on A2).
    """
    base, sub = place.pci_class(gpu)
    address = function_address(gpu.state, function.number)
    klass = f"{base:02x}{sub:02x}00"
    return PciIdentity(address, NVIDIA, _device_id(gpu.state), klass, NVIDIA, "0000", virtual=True)


def neighbour(gpu: GpuState, state: NeighbourState) -> PciIdentity:
    """Return the identity of a device of another vendor; by default an Intel I350 network function."""
    vendor, _, device = state.ids.partition(":")
    sub_vendor, _, sub_device = state.board.partition(":")
    address = neighbour_address(gpu, state)
    return PciIdentity(
        address, vendor, device, state.class_id, sub_vendor, sub_device, "01", virtual=bool(state.physfn)
    )


def port(gpu: GpuState) -> PciIdentity:
    return PciIdentity(port_address(gpu), "8086", "347a", "060400", "8086", "0000", "04")


def gpu_group(node: NodeState, gpu: GpuState) -> int:
    """Return the IOMMU group of a GPU; the numbers differ from boot to boot."""
    return 32 + 3 * ((node.boots - 1) % 4) + gpu.index


FIRST_FREE_GROUP = 80
"""Groups of virtual functions and mdevs take the lowest free number from here on."""


def free_groups(node: NodeState, count: int) -> list[int]:
    """Return numbers for new IOMMU groups."""
    used = {f.group for g in node.gpus for f in g.functions} | {v.group for g in node.gpus for v in g.vgpus}
    found: list[int] = []
    number = FIRST_FREE_GROUP
    while len(found) < count:
        if number not in used:
            found.append(number)
        number += 1
    return found
