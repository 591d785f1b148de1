"""Nodes of cards that the tables of vGPU types know, without any driver."""

from __future__ import annotations

from aliquot.model import vgpu
from aliquot.model.inventory import Gpu, Inventory, Mig
from aliquot.model.vgpu import VgpuTable


def card(name: str) -> VgpuTable:
    """The table of a product by the end of its name: ``A2``, ``T4``, ``H100 80GB HBM3``."""
    for table in vgpu.tables():
        if name in (table.name, table.name.removeprefix("NVIDIA "), table.name.removeprefix("Tesla ")):
            return table
    raise KeyError(name)


def board(table: VgpuTable, index: int = 0) -> Gpu:
    """One GPU of that product, with the subsystem id that tells it from others of its PCI id."""
    return Gpu(
        pci=f"0000:{0x10 + index:02x}:00.0",
        uuid=f"GPU-{index:08x}-0000-4000-8000-000000000000",
        index=index,
        product=table.name,
        pci_device=table.pci_device,
        subsystem=f"{table.subsystem}10DE" if table.subsystem else "",
        family=table.mig_family,
        mig=Mig(capable=table.mig_family is not None),
    )


def node(*names: str) -> Inventory:
    """A node of these cards, in this order."""
    return Inventory(node="cards", gpus=tuple(board(card(name), n) for n, name in enumerate(names)))
