"""Whether a GPU has anything to do with virtual machines: only then is that half of the planner loaded."""

from __future__ import annotations

from aliquot.core.model.desired import GpuWish
from aliquot.core.model.inventory import Gpu


def concerns_virtual_machines(gpu: Gpu, wish: GpuWish) -> bool:
    """Whether a wish or the GPU itself has to do with virtual functions, vGPUs or passthrough."""
    asked = (wish.vgpus, wish.functions, wish.mixed, wish.passthrough, wish.bound)
    present = gpu.passthrough or gpu.vgpus or (gpu.virtual is not None and gpu.virtual.functions)
    return bool(present) or any(each is not None for each in asked)
