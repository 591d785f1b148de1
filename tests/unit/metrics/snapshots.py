"""Snapshots with every value that a page can report."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import msgspec

from aliquot.core.model import catalog, vgpu_types
from aliquot.core.model.inventory import (
    Gpu,
    GpuInstance,
    GpuVirtualization,
    Holder,
    Inventory,
    Mig,
    Vgpu,
    VirtualFunction,
)
from aliquot.core.model.plan import Drift
from aliquot.core.model.usage import Usage
from aliquot.core.model.vgpu_usage import VgpuUsage
from aliquot.dashboard.ports import FleetSource
from aliquot.dashboard.view_models import ObservedFleet
from aliquot.metrics.snapshot import NodeSnapshot, SnapshotDetails
from laws.oracle import mig_nodes

A100 = catalog.family("a100-40gb")
A2 = next(table for table in vgpu_types.tables() if table.name == "NVIDIA A2")
A2_4Q = A2.by_name["A2-4Q"].id or 0
PCI = mig_nodes.gpu(A100, [], []).pci


def gpu(placed: Iterable[tuple[str, int]], held: Iterable[tuple[str, int]] = ()) -> Gpu:
    return mig_nodes.gpu(A100, list(placed), list(held))


def plain() -> Inventory:
    """Build one A100 with two instances, one of them held."""
    return mig_nodes.node(gpu([("3g.20gb", 0), ("1g.5gb", 4)], [("3g.20gb", 0)]))


def everything() -> NodeSnapshot:
    """Build a snapshot with MIG and vGPUs, a GPU outside MIG mode, usage, drift, a hint, a blocked request, an
    error.
    """
    inventory = plain()
    first = inventory.gpus[0]
    function = VirtualFunction("0000:99:00.4", 0)
    shared = Gpu(
        pci="0000:99:00.0",
        uuid="GPU-shared",
        index=1,
        product="NVIDIA A2",
        pci_device=A2.pci_device,
        subsystem=A2.subsystem,
        minor=1,
        virtual=GpuVirtualization(framework="vendor-vfio", total=16, functions=(function,), addresses=(function.pci,)),
        vgpus=(Vgpu(function.pci, A2_4Q, "NVIDIA A2-4Q", holders=(Holder("vm", "7", "v"),)),),
    )
    inventory = msgspec.structs.replace(inventory, gpus=(first, shared))
    instance = first.instances[0]
    usage = (
        Usage(first.pci, instance.id, instance.profile, 100, 20000, 0.5, "gpm", 1.0, 200, 1.0, 0.5),
        Usage(shared.pci, None, "", 10, 15000),
    )
    vgpu = VgpuUsage(shared.pci, A2_4Q, "u", "", "vm-uuid", 0.5, 0.2, 0.1, 0.0, 1024, "licensed", 4e9)
    seen = SnapshotDetails(1e9, usage, ("HELD",), 1, ((first.pci, instance.id, "1g.5gb"),), (vgpu,))
    pcis = frozenset((first.pci, shared.pci))
    drift = (Drift(first.pci, "missing", "GPU: 1 x 2g.10gb missing"),)
    return NodeSnapshot("n", inventory, seen, pcis, frozenset({"3g.20gb"}), drift)


def hidden() -> NodeSnapshot:
    """Build GPUs that NVML does not list: without index and UUID, only their addresses distinguish them."""
    pair = tuple(
        Gpu(pci=pci, uuid="", index=-1, product="NVIDIA A2", passthrough=True, mig=Mig())
        for pci in ("0000:0a:00.0", "0001:0a:00.0")
    )
    return NodeSnapshot("n", Inventory("n", pair), SnapshotDetails(1.0))


def many() -> NodeSnapshot:
    """Build eight GPUs with seven instances each, and with all known values of each."""
    gpus = []
    for n in range(8):
        made = gpu([("1g.5gb", k) for k in range(7)])
        gpus.append(msgspec.structs.replace(made, pci=f"0000:{n:02x}:00.0", uuid=f"GPU-{n}", index=n, minor=n))
    usage = tuple(Usage(g.pci, i.id, i.profile, 1, 4864, 0.1, "gpm", 1.0, 2, 1.0) for g in gpus for i in _instances(g))
    return NodeSnapshot("n", msgspec.structs.replace(plain(), gpus=tuple(gpus)), SnapshotDetails(1.0, usage))


def _instances(found: Gpu) -> tuple[GpuInstance, ...]:
    return found.instances


class _Source:
    kind, title = "simulator", "a fleet"
    fleet = ObservedFleet()


def source() -> FleetSource:
    return cast(FleetSource, _Source())
