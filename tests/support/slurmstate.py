"""GPUs for tests of Slurm's side: inventories with a kernel's minors, and slurmd's view of them."""

from __future__ import annotations

import msgspec

from aliquot.core.model.inventory import Gpu, GpuInstance, Inventory
from support.factory import inventory, with_instances


def sliced(*instances: str, products: str = "a100-sxm4-40gb*2", gpu: int = 0) -> Inventory:
    """Return a node with these instances on one GPU (as ``factory.with_instances`` writes them), with capabilities and
    UUIDs as the kernel and the driver have them.
    """
    return with_minors(with_instances(inventory(*products.split(",")), gpu, *instances))


def with_minors(node: Inventory) -> Inventory:
    """Return the node with the capability minors of its instances, as nv-caps.c counts them: from a table, without a
    formula.
    """
    table = _table()
    return msgspec.structs.replace(node, gpus=tuple(_gpu(g, table) for g in node.gpus))


def _gpu(gpu: Gpu, table: dict[str, int]) -> Gpu:
    instances = tuple(_instance(gpu, i, table) for i in gpu.instances)
    return msgspec.structs.replace(gpu, instances=instances)


def _instance(gpu: Gpu, instance: GpuInstance, table: dict[str, int]) -> GpuInstance:
    place = f"gpu{gpu.minor}/gi{instance.id}"
    compute = tuple(
        msgspec.structs.replace(
            c,
            capability_minor=table[f"{place}/ci{c.id}/access"],
            uuid=f"MIG-{gpu.minor}-{instance.id}-{c.id}",
        )
        for c in instance.compute_instances
    )
    return msgspec.structs.replace(instance, capability_minor=table[f"{place}/access"], compute_instances=compute)


def _table() -> dict[str, int]:
    """Return ``/proc/driver/nvidia-caps/mig-minors``: config 1, monitor 2, then every possible instance, in order."""
    found = {"config": 1, "monitor": 2}
    for gpu in range(32):
        for gi in range(15):
            found[f"gpu{gpu}/gi{gi}/access"] = len(found) + 1
            for ci in range(8):
                found[f"gpu{gpu}/gi{gi}/ci{ci}/access"] = len(found) + 1
    return found
