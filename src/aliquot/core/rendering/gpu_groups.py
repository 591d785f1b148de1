"""Groups of GPUs that would be drawn alike, to be drawn once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence

import msgspec

from aliquot.core.model.ids import index_ranges
from aliquot.core.model.inventory import Gpu, GpuInstance
from aliquot.core.rendering import mig_picture


def group_gpus(gpus: Iterable[Gpu], draw: Callable[[Gpu], Hashable], *, each: bool = False) -> list[tuple[Gpu, ...]]:
    """Return the GPUs in groups with equal drawings, in the order of their first GPU.

    ``draw`` omits identities (`without_identity`). With ``each`` every GPU is a group of its own.
    """
    groups: dict[Hashable, list[Gpu]] = {}
    for gpu in gpus:
        groups.setdefault(gpu.pci if each else draw(gpu), []).append(gpu)
    return [tuple(group) for group in groups.values()]


def drawn_gpu(group: Sequence[Gpu]) -> Gpu:
    """Return the GPU to draw for a group: the only one, or one without its identity."""
    return group[0] if len(group) == 1 else without_identity(group[0])


def group_title(group: Sequence[Gpu]) -> str:
    """Return ``GPU 0  0000:41:00.0  A100-SXM4-40GB``, or ``GPUs 0-3, 5: the same  A100-SXM4-40GB``."""
    if len(group) == 1:
        return mig_picture.title(group[0])
    return f"GPUs {index_ranges(gpu.index for gpu in group)}: the same  {mig_picture.product(group[0])}"


def without_identity(gpu: Gpu) -> Gpu:
    """Return a GPU without its index, address and UUID, and without the UUIDs of its MIG devices."""
    instances = tuple(_without_uuids(instance) for instance in gpu.instances)
    return msgspec.structs.replace(gpu, pci="", uuid="", index=0, instances=instances)


def _without_uuids(instance: GpuInstance) -> GpuInstance:
    inner = tuple(msgspec.structs.replace(each, uuid="") for each in instance.compute_instances)
    return msgspec.structs.replace(instance, compute_instances=inner)
