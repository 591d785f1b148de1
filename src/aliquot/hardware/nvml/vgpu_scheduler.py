"""The scheduler of time-sliced vGPUs through NVML.

The driver's newer calls (``_v2``, R595) cannot turn strict round robin off and have the same effect otherwise. So the
first version, which all branches export, serves all.
"""

from __future__ import annotations

from typing import Any

from aliquot.core.model import nvml_return_codes as codes
from aliquot.core.model.vgpu_scheduler import STRICT_OFF, STRICT_ON, from_driver, to_driver
from aliquot.hardware.nvml.session import NvmlSession


def read_scheduler(session: NvmlSession, handle: Any) -> str:
    """Return the scheduler of a GPU, "" if its driver has no such call or the GPU has none now."""
    code, state = session.try_call(session.nv.nvmlDeviceGetVgpuSchedulerState, handle)
    if code != codes.SUCCESS:
        return ""
    if state.arrMode == STRICT_OFF:
        time_slice = state.schedulerParams.vgpuSchedData.timeslice
    else:
        time_slice = state.schedulerParams.vgpuSchedDataWithARR.timeslice
    return from_driver(int(state.schedulerPolicy), int(state.arrMode), int(time_slice))


def write_scheduler(session: NvmlSession, handle: Any, pci: str, scheduler: str) -> None:
    """Set the scheduler of a GPU. Raises the driver's refusal."""
    nv = session.nv
    state = nv.c_nvmlVgpuSchedulerSetState_t()
    state.schedulerPolicy, state.enableARRMode, time_slice, frequency = to_driver(scheduler)
    if state.enableARRMode == STRICT_OFF:
        state.schedulerParams.vgpuSchedData.timeslice = time_slice
    elif state.enableARRMode == STRICT_ON:
        state.schedulerParams.vgpuSchedDataWithARR.frequency = frequency
    attempt = f"setting the vGPU scheduler {scheduler} on {pci}"
    session.call(attempt, nv.nvmlDeviceSetVgpuSchedulerState, handle, state, gpu=pci)
