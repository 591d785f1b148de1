"""The scheduler of time-sliced vGPUs in nvidia-smi: ``vgpu -ss`` and ``vgpu set-scheduler-state``."""

from __future__ import annotations

from aliquot.core.model.vgpu_scheduler import STRICT_OFF, STRICT_ON, from_driver, to_driver
from aliquot.hardware.nvidia_smi.query_output import sections

STATE = ("vgpu", "-ss")
"""The command that reports the schedulers of all GPUs."""
_POLICIES = ("Best Effort", "Equal Share", "Fixed Share")
_MODES = {"Disabled": STRICT_OFF, "Enabled": STRICT_ON}
_SLICE = "Time Slice(ns)"


def parse_schedulers(text: str) -> dict[str, str]:
    """Return the scheduler of each GPU in a report, by PCI address. Mode and time slice are missing without a VM."""
    found: dict[str, str] = {}
    for pci, facts in sections(text):
        values = {path[-1]: value for path, value in facts}
        policy = values.get("Scheduler Policy", "")
        time_slice = values.get(_SLICE, "")
        found[pci] = from_driver(
            _POLICIES.index(policy) + 1 if policy in _POLICIES else 0,
            _MODES.get(values.get("ARR Mode", ""), 0),
            int(time_slice) if time_slice.isdigit() else 0,
        )
    return found


def set_command(pci: str, scheduler: str) -> tuple[str, ...]:
    """Return the arguments that set a scheduler."""
    policy, strict, time_slice, frequency = to_driver(scheduler)
    command = ("vgpu", "set-scheduler-state", "-i", pci, "-p", str(policy))
    if strict == STRICT_OFF:
        return (*command, "-a", "0", "-ts", str(time_slice))
    return (*command, "-a", "1", "-asf", str(frequency)) if strict == STRICT_ON else command
