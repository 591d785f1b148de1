"""The names of all calls in a node's log; a fault can be set for each."""

from __future__ import annotations

from difflib import get_close_matches

from aliquot.sim.driver import sensor_values as sensors
from aliquot.sim.driver.mig_calls import INSTANCE_READS, MIG_READS, WRITES
from aliquot.sim.driver.nvml_calls import GPU_ONLY, GPU_OR_MIG, SYSTEM
from aliquot.sim.driver.vgpu_calls import VGPU_INSTANCE_READS, VGPU_READS, VGPU_WRITES
from aliquot.sim.driver.vgpu_load import VGPU_INSTANCE_CALLS, VGPU_LOAD_READS

METRIC_CALLS = frozenset(sensors.METRICS) | {
    *("DeviceGetPowerUsage", "DeviceGetEnforcedPowerLimit", "DeviceGetPowerManagementLimit"),
    *("DeviceGetPowerManagementDefaultLimit", "DeviceGetClockInfo", "DeviceGetMaxClockInfo"),
    *("DeviceGetApplicationsClock", "DeviceGetDefaultApplicationsClock", "DeviceGetTemperatureThreshold"),
    *("DeviceGetCurrPcieLinkGeneration", "DeviceGetMaxPcieLinkGeneration"),
}
DEVICE_READS = GPU_OR_MIG | GPU_ONLY | MIG_READS | INSTANCE_READS | VGPU_READS | VGPU_LOAD_READS | VGPU_INSTANCE_READS
SYSTEM_READS = SYSTEM | VGPU_INSTANCE_CALLS
DEVICE_WRITES = WRITES | VGPU_WRITES
SESSION_CALLS = frozenset({"Init", "Shutdown"})
WHOLE_NODE_CALLS = frozenset({"Snapshot", "Facts", "Usage", "VgpuUsage"})
"""Calls that read the whole node at once, if Aliquot accesses the simulator without NVML."""
KERNEL_CALLS = frozenset({"SysfsWrite", "SriovManage"})
KNOWN = (
    SESSION_CALLS
    | WHOLE_NODE_CALLS
    | KERNEL_CALLS
    | METRIC_CALLS
    | frozenset(SYSTEM_READS)
    | frozenset(DEVICE_READS)
    | frozenset(DEVICE_WRITES)
)


CHANGING = frozenset(DEVICE_WRITES) | KERNEL_CALLS


def unknown_call(call: str, kind: object) -> str:
    """Return the sentence that rejects a call name for a kind of fault, with similar names. Return "" for an existing
    call, which for ``no-effect`` must also change something.
    """
    known = CHANGING if kind == "no-effect" else KNOWN
    if call in known:
        return ""
    if call in KNOWN:
        return f"{call} changes nothing: fault {kind} is for {', '.join(sorted(known))}"
    near = get_close_matches(call.removeprefix("nvml"), sorted(KNOWN), n=3)
    hint = f": did you mean {' or '.join(near)}?" if near else ""
    return f"the simulator has no call {call!r}{hint}"
