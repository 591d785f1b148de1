"""The scheduler of time-sliced vGPUs through NVML: of a GPU, and of a GPU instance that several vGPUs share.

The driver's newer calls (``_v2``, R595) cannot turn strict round robin off and have the same effect otherwise. So the
first version, which all branches export, serves all.
"""

from __future__ import annotations

from typing import Any

import msgspec

from aliquot.core.model import nvml_return_codes as codes
from aliquot.core.model.vgpu_scheduler import STRICT_OFF, STRICT_ON, from_driver, to_driver
from aliquot.hardware.nvml.session import NvmlSession

_GRAPHICS = 1
"""The only engine type that has a scheduler."""


def read_scheduler(session: NvmlSession, handle: Any) -> str:
    """Return the scheduler of a GPU, "" if its driver has no such call or the GPU has none now."""
    code, state = session.try_call(session.nv.nvmlDeviceGetVgpuSchedulerState, handle)
    return "" if code != codes.SUCCESS else _text(state)


def read_instance_scheduler(session: NvmlSession, instance: Any) -> str | msgspec.UnsetType:
    """Return the scheduler of a GPU instance, unset if it has none, or if driver or nvidia-ml-py cannot report it."""
    query = getattr(session.nv, "nvmlGpuInstanceGetVgpuSchedulerState", None)
    if query is None:
        return msgspec.UNSET
    state = session.nv.c_nvmlVgpuSchedulerStateInfo_v1_t()
    state.version, state.engineId = session.nv.nvmlVgpuSchedulerStateInfo_v1, _GRAPHICS
    code, _ = session.try_call(query, instance, state)
    return msgspec.UNSET if code != codes.SUCCESS else _text(state) or msgspec.UNSET


def write_scheduler(session: NvmlSession, handle: Any, pci: str, scheduler: str) -> None:
    """Set the scheduler of a GPU. Raises the driver's refusal."""
    state = session.nv.c_nvmlVgpuSchedulerSetState_t()
    _fill(state, scheduler)
    attempt = f"setting the vGPU scheduler {scheduler} on {pci}"
    session.call(attempt, session.nv.nvmlDeviceSetVgpuSchedulerState, handle, state, gpu=pci)


def write_instance_scheduler(session: NvmlSession, instance: Any, attempt: str, pci: str, scheduler: str) -> None:
    """Set the scheduler of a GPU instance. Raises the driver's refusal."""
    state = session.nv.c_nvmlVgpuSchedulerState_v1_t()
    state.version, state.engineId = session.nv.nvmlVgpuSchedulerState_v1, _GRAPHICS
    _fill(state, scheduler)
    session.call(attempt, session.nv.nvmlGpuInstanceSetVgpuSchedulerState, instance, state, gpu=pci)


def _text(state: Any) -> str:
    """Return the scheduler in a structure of the driver."""
    if state.arrMode == STRICT_OFF:
        time_slice = state.schedulerParams.vgpuSchedData.timeslice
    else:
        time_slice = state.schedulerParams.vgpuSchedDataWithARR.timeslice
    return from_driver(int(state.schedulerPolicy), int(state.arrMode), int(time_slice))


def _fill(state: Any, scheduler: str) -> None:
    """Write a scheduler into a structure for the driver."""
    state.schedulerPolicy, state.enableARRMode, time_slice, frequency = to_driver(scheduler)
    if state.enableARRMode == STRICT_OFF:
        state.schedulerParams.vgpuSchedData.timeslice = time_slice
    elif state.enableARRMode == STRICT_ON:
        state.schedulerParams.vgpuSchedDataWithARR.frequency = frequency
