"""The parameters of NVIDIA's vGPU plugin: what a vGPU is besides its type, in the file ``vgpu_params`` of each vGPU.

The file holds ``name=value`` pairs with commas between them. The plugin reads it when a VM opens the vGPU, and the
driver refuses a write while one has it open. A new vGPU has none, so the plugin's defaults apply.
"""

from __future__ import annotations

from collections.abc import Mapping

NAMES = ("disable_vnc", "enable_debugging", "enable_profiling", "enable_uvm", "frame_rate_limiter")
"""The switches that NVIDIA documents. Each is 0 or 1."""
CUDA_ONLY = ("enable_debugging", "enable_profiling", "enable_uvm")
"""Those that concern CUDA in the guest: debuggers, profilers, unified memory."""
CUDA_SERIES = ("Q", "C")
"""The series of vGPU types whose guests have CUDA (NVIDIA's vGPU guide)."""


def normal_text(text: str) -> str:
    """Return the content of ``vgpu_params`` in our order: sorted, without spaces and empty parts."""
    return ",".join(sorted(filter(None, ("".join(part.split()) for part in text.split(",")))))


def from_switches(switches: Mapping[str, bool]) -> str:
    """Return the text for some switches."""
    return normal_text(",".join(f"{name}={int(on)}" for name, on in switches.items()))


def as_switches(text: str) -> dict[str, bool] | None:
    """Return the switches of a text in our order. None if a part of it is not a switch that NVIDIA documents."""
    pairs = [part.partition("=") for part in filter(None, text.split(","))]
    if any(name not in NAMES or value not in ("0", "1") for name, _, value in pairs):
        return None
    return {name: value == "1" for name, _, value in pairs}
