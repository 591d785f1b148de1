"""The places of a GPU that carry its vGPUs: on its virtual functions or, on Turing and Volta boards, in numbered slots.

Those boards have no SR-IOV: their vGPUs are mdevs of the GPU itself. Each slot has an address of its own, the GPU's
with a slash and a number (``0000:3b:00.0/03``), so that it has a VGPUDevice like a virtual function. The number gives
the mdev its UUID, so that both return together after a reboot.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain

from aliquot.core.model.inventory import Gpu, Vgpu
from aliquot.core.model.pci import PciFunction
from aliquot.core.model.vgpu_types import VgpuTable, table
from aliquot.core.planner.vgpu.naming import stable_uuid
from aliquot.kubernetes.kinds.harvester import VGPUDevice


def mdev_table(function: PciFunction) -> VgpuTable | None:
    """Return the vGPU types of a GPU whose vGPUs are mdevs of itself; None for any other function.

    Needs no driver: the PCI ids name the board.
    """
    if not function.gpu or function.sriov or function.virtual:
        return None
    found = table(function.packed, function.subsystem)
    return found if found is not None and not found.sriov else None


def can_have_vgpus(function: PciFunction) -> bool:
    """Report whether a function is a GPU that vGPUs can share, with virtual functions or without."""
    return function.gpu and (function.sriov or mdev_table(function) is not None)


def slots(function: PciFunction, gpu: Gpu | None) -> tuple[str, ...]:
    """Return the addresses of a GPU's slots: as many as vGPUs of its smallest type, and one for each that exists."""
    types = mdev_table(function)
    if types is None:
        return ()
    count = max(chain((each.max for each in types.types), (len(gpu.vgpus) if gpu is not None else 0,)))
    return tuple(f"{function.address}/{number:02}" for number in range(count))


def vgpus_by_address(function: PciFunction, gpu: Gpu, objects: Mapping[str, VGPUDevice]) -> dict[str, Vgpu]:
    """Return a GPU's vGPUs by virtual function or slot. ``objects`` are its VGPUDevices, by address."""
    places = slots(function, gpu)
    return _vgpus_by_slot(gpu, places, objects) if places else {vgpu.function: vgpu for vgpu in gpu.vgpus}


def physical_address(address: str) -> str:
    """Return the PCI address of a virtual function, or that of the GPU to which a slot belongs."""
    return address.partition("/")[0]


def _vgpus_by_slot(gpu: Gpu, addresses: Iterable[str], objects: Mapping[str, VGPUDevice]) -> dict[str, Vgpu]:
    """Return a GPU's mdevs by slot.

    An mdev has the slot of the object that records it, then the one that its UUID is made of. One that another program
    made has the last free slot: the first ones are those that users enable.
    """
    left = list(addresses)
    recorded = {found.status.uuid: address for address, found in objects.items() if found.status.uuid}
    made = {slot_uuid(gpu, address): address for address in left}
    placed: dict[str, Vgpu] = {}
    others: list[Vgpu] = []
    for vgpu in sorted(gpu.vgpus, key=lambda each: each.uuid):
        address = recorded.get(vgpu.uuid) or made.get(vgpu.uuid)
        if address is None or address in placed:
            others.append(vgpu)
        else:
            placed[address] = vgpu
    lost = set(recorded.values())  # a reboot destroyed the mdev of these objects, which is to come back
    free = [address for address in reversed(left) if address not in placed]
    return placed | dict(zip(sorted(free, key=lambda address: address in lost), others, strict=False))


def slot_uuid(gpu: Gpu, address: str) -> str:
    """Return the UUID of the mdev in a slot."""
    return stable_uuid(gpu, int(address.rpartition("/")[2]))
