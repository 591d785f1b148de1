"""The driver's own tables of the partitions that a GPU supports."""

from __future__ import annotations

import msgspec

from aliquot.core.model.inventory import Gpu
from aliquot.hardware.nvml.profiles import (
    ComputeRow,
    GpuProfileRow,
    architecture,
    memory_mib,
    read_compute_rows,
    read_rows,
)
from aliquot.hardware.nvml.reader import NvmlReader


class GpuDescription(msgspec.Struct, frozen=True):
    """The driver's own tables of one GPU."""

    gpu: Gpu
    driver: str
    nvml: str
    architecture: str
    memory_mib: int | None
    rows: tuple[GpuProfileRow, ...]
    compute: dict[int, tuple[ComputeRow, ...]]
    """Compute instance profiles by GPU instance profile id. Only profiles that have an instance now are included,
    because the driver lists compute instance profiles only of existing instances.
    """
    index_names: dict[int, str]


def describe(reader: NvmlReader, pci: str) -> GpuDescription:
    """Return the driver's tables of a GPU. Reads only. Raises the errors of reading."""
    session, handle, gpu = reader.session, reader.handle(pci), reader.gpu(pci)
    nv = session.nv
    compute: dict[int, tuple[ComputeRow, ...]] = {}
    for instance in gpu.instances:
        if instance.profile_id not in compute:
            attempt = f"opening GPU instance {instance.id} on {pci}"
            opened = session.call(attempt, nv.nvmlDeviceGetGpuInstanceById, handle, instance.id, gpu=pci)
            compute[instance.profile_id] = read_compute_rows(session, opened)
    prefix = "NVML_GPU_INSTANCE_PROFILE_"
    return GpuDescription(
        gpu=gpu,
        driver=session.driver,
        nvml=session.nvml,
        architecture=architecture(session, handle),
        memory_mib=memory_mib(session, handle),
        rows=read_rows(session, handle, placements=gpu.mig.enabled),
        compute=compute,
        index_names={value: name for name, value in vars(nv).items() if name.startswith(prefix) and "_SLICE" in name},
    )
