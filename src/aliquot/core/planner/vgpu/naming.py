"""Names around vGPUs: UUIDs that stay the same over a reboot, and wishes as the command line takes them."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from aliquot.core.model.inventory import Gpu

NAMESPACE = uuid.UUID("6f1d3a3e-6a5d-5c0b-9c1e-5b6a7f0d2c41")
"""Ours alone. It must never change: the UUIDs in people's virtual machines follow from it."""


def stable_uuid(gpu: Gpu, number: int) -> str:
    """The UUID of the vGPU on virtual function ``number`` of a GPU, or in slot ``number`` where vGPUs are mdevs of the
    GPU itself. It follows from the GPU and the number alone: what a virtual machine refers to survives a reboot.
    """
    return str(uuid.uuid5(NAMESPACE, f"{gpu.uuid or gpu.pci}/{number}"))


def vgpu_argument(counts: Mapping[str, int]) -> str:
    """vGPU types by number as ``--vgpu`` takes them: ``NVIDIA A2-4Q*4,NVIDIA A2-4A``."""
    return ",".join(name if n == 1 else f"{name}*{n}" for name, n in counts.items() if n) or "none"


def plan_command(gpu: Gpu, counts: Mapping[str, int], mixed: bool = False) -> str:
    """The command that plans some vGPUs on a GPU. Names of types have blanks, so they are quoted."""
    return f'aliquot plan --gpu {gpu.pci} --vgpu "{vgpu_argument(counts)}"' + (" --mixed-size" if mixed else "")


def counts_text(counts: Mapping[str, int]) -> str:
    """The same for people: ``4 x NVIDIA A2-4Q and 2 x NVIDIA A2-4A``."""
    parts = [f"{n} x {name}" for name, n in counts.items() if n]
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts) or "no vGPU"
