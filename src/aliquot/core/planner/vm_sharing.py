"""Whether a GPU has anything to do with virtual machines: only then is that half of the planner loaded."""

from __future__ import annotations

from aliquot.core.model.desired import DesiredGpu
from aliquot.core.model.inventory import Gpu


def involves_vms(gpu: Gpu, desired_gpu: DesiredGpu) -> bool:
    """Whether a wish or the GPU itself has to do with virtual functions, vGPUs or passthrough."""
    requested = (
        desired_gpu.vgpus,
        desired_gpu.functions,
        desired_gpu.mixed_size,
        desired_gpu.passthrough,
        desired_gpu.vfio_bound,
    )
    present = gpu.passthrough or gpu.vgpus or (gpu.virtual is not None and gpu.virtual.functions)
    return bool(present) or any(each is not None for each in requested)
