"""Names of GPUs in sentences."""

from __future__ import annotations

from collections.abc import Sequence

from aliquot.core.model.ids import index_ranges
from aliquot.core.model.inventory import Gpu


def gpu_text(gpu: Gpu) -> str:
    return f"GPU {gpu.index} ({gpu.product}, {gpu.pci})"


def gpus_text(gpus: Sequence[Gpu]) -> str:
    """Name the GPUs: ``GPU 0 (NVIDIA A30, 0000:07:00.0)``, or ``GPUs 0-3, 5 (NVIDIA A30)``."""
    if len(gpus) == 1:
        return gpu_text(gpus[0])
    products = ", ".join(dict.fromkeys(gpu.product for gpu in gpus))
    return f"GPUs {index_ranges(gpu.index for gpu in gpus)} ({products})"
