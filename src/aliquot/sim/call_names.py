"""Every name that a call has in a node's log, and that a fault may be set for."""

from __future__ import annotations

from difflib import get_close_matches

from aliquot.sim.driver import sensor_values as figures
from aliquot.sim.driver.mig_calls import INSTANCE_READS, MIG_READS, WRITES
from aliquot.sim.driver.nvml_calls import GPU_ONLY, GPU_OR_MIG, SYSTEM
from aliquot.sim.driver.vgpu_calls import VGPU_READS, VGPU_WRITES

METRIC_CALLS = frozenset(figures.METRICS) | {
    *("DeviceGetPowerUsage", "DeviceGetEnforcedPowerLimit", "DeviceGetPowerManagementLimit"),
    *("DeviceGetPowerManagementDefaultLimit", "DeviceGetClockInfo", "DeviceGetMaxClockInfo"),
    *("DeviceGetApplicationsClock", "DeviceGetDefaultApplicationsClock", "DeviceGetTemperatureThreshold"),
    *("DeviceGetCurrPcieLinkGeneration", "DeviceGetMaxPcieLinkGeneration"),
}
DEVICE_READS = GPU_OR_MIG | GPU_ONLY | MIG_READS | INSTANCE_READS | VGPU_READS
DEVICE_WRITES = WRITES | VGPU_WRITES
SESSION_CALLS = frozenset({"Init", "Shutdown"})
WHOLE_NODE_CALLS = frozenset({"Snapshot", "Facts", "Usage"})
"""What Aliquot asks of a node at once where it speaks to the simulator without NVML."""
KERNEL_CALLS = frozenset({"SysfsWrite", "SriovManage"})
KNOWN = (
    SESSION_CALLS
    | WHOLE_NODE_CALLS
    | KERNEL_CALLS
    | METRIC_CALLS
    | frozenset(SYSTEM)
    | frozenset(DEVICE_READS)
    | frozenset(DEVICE_WRITES)
)


CHANGING = frozenset(DEVICE_WRITES) | KERNEL_CALLS


def unknown_call(call: str, kind: object) -> str:
    """Return the sentence that refuses a name for a kind of fault, with the names that resemble it; empty for a call
    that exists, and that changes something where the fault is ``no-effect``.
    """
    known = CHANGING if kind == "no-effect" else KNOWN
    if call in known:
        return ""
    if call in KNOWN:
        return f"{call} changes nothing: fault {kind} is for {', '.join(sorted(known))}"
    near = get_close_matches(call.removeprefix("nvml"), sorted(KNOWN), n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else "aliquot sim show --calls lists the calls of this node"
    return f"the simulator has no call {call!r}: {hint}"
