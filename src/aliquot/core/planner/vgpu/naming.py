"""Names of vGPUs: UUIDs that survive a reboot, and requests in the form of the command line."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from aliquot.core.model.inventory import Gpu
from aliquot.core.model.structured_text import GpuOption, StructuredText

NAMESPACE = uuid.UUID("6f1d3a3e-6a5d-5c0b-9c1e-5b6a7f0d2c41")
"""Used only by Aliquot. It must never change: UUIDs in VM definitions are derived from it."""


def stable_uuid(gpu: Gpu, number: int) -> str:
    """Return the UUID of the vGPU on virtual function ``number``, or in slot ``number`` if vGPUs are mdevs of the GPU.

    It follows only from the GPU and the number, so that a reference in a VM definition survives a reboot.
    """
    return str(uuid.uuid5(NAMESPACE, f"{gpu.uuid or gpu.pci}/{number}"))


def vgpu_argument(counts: Mapping[str, int]) -> str:
    """Format vGPU counts for ``--vgpu``: ``NVIDIA A2-4Q*4,NVIDIA A2-4A``."""
    return ",".join(name if n == 1 else f"{name}*{n}" for name, n in counts.items() if n) or "none"


def plan_command(gpu: Gpu, counts: Mapping[str, int], mixed: bool = False) -> StructuredText:
    """Return the command that plans some vGPUs on a GPU. Type names contain spaces, so they are quoted."""
    more = f' --vgpu "{vgpu_argument(counts)}"' + (" --mixed-size" if mixed else "")
    return StructuredText("aliquot plan ", GpuOption(gpu.pci), more)


def counts_text(counts: Mapping[str, int]) -> str:
    """Format vGPU counts for display: ``4 x NVIDIA A2-4Q and 2 x NVIDIA A2-4A``."""
    parts = [f"{n} x {name}" for name, n in counts.items() if n]
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts) or "no vGPU"
