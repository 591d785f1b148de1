"""GPUs in sentences."""

from __future__ import annotations

from collections.abc import Sequence

from aliquot.core.model.inventory import Gpu


def gpu_text(gpu: Gpu) -> str:
    return f"GPU {gpu.index} ({gpu.product}, {gpu.pci})"


def gpus_text(gpus: Sequence[Gpu]) -> str:
    """``GPU 0 (NVIDIA A30, 0000:07:00.0)``, or ``GPUs 0-3, 5 (NVIDIA A30)``."""
    if len(gpus) == 1:
        return gpu_text(gpus[0])
    runs: list[list[int]] = []
    for number in sorted(gpu.index for gpu in gpus):
        if runs and runs[-1][-1] + 1 == number:
            runs[-1].append(number)
        else:
            runs.append([number])
    numbers = ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
    products = ", ".join(dict.fromkeys(gpu.product for gpu in gpus))
    return f"GPUs {numbers} ({products})"
