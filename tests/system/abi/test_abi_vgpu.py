"""vGPU calls of the library, from unmodified nvidia-ml-py in its own process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from aliquot.sim import lifecycle as control
from aliquot.sim.client import SimClient
from aliquot.sim.files import SimFiles

CLIENT = """
import ctypes, json, sys
import pynvml as n

def code(act, *words):
    try:
        return act(*words)
    except n.NVMLError as refused:
        return -refused.value

def scheduler(handle):
    state = code(n.nvmlDeviceGetVgpuSchedulerState, handle)
    if isinstance(state, int):
        return state
    return [state.schedulerPolicy, state.arrMode, state.schedulerParams.vgpuSchedDataWithARR.timeslice]

def schedule(handle, policy, arr, **params):
    state = n.c_nvmlVgpuSchedulerSetState_t()
    state.schedulerPolicy, state.enableARRMode = policy, arr
    for name, value in params.items():
        setattr(state.schedulerParams.vgpuSchedDataWithARR, name, value)
    return code(n.nvmlDeviceSetVgpuSchedulerState, handle, state)

n.nvmlInit()
found = [n.nvmlDeviceGetHandleByIndex(i) for i in range(n.nvmlDeviceGetCount())]
wrong = n.c_nvmlVgpuHeterogeneousMode_v1_t(0)
wrong.version = 7
print(json.dumps({
    "names": [n.nvmlDeviceGetName(h) for h in found],
    "index": [n.nvmlDeviceGetIndex(h) for h in found],
    "host": [n.nvmlDeviceGetVirtualizationMode(h) for h in found],
    "before": [code(n.nvmlDeviceGetVgpuHeterogeneousMode, h) for h in found],
    "set": [code(n.nvmlDeviceSetVgpuHeterogeneousMode, h, 1) for h in found],
    "after": [code(n.nvmlDeviceGetVgpuHeterogeneousMode, h) for h in found],
    "set_scheduler": [schedule(h, 2, 2, frequency=500) for h in found],
    "scheduler": [scheduler(h) for h in found],
    "fixed": [schedule(h, 3, 0) for h in found],
    "wrong": n._nvmlGetFunctionPointer("nvmlDeviceGetVgpuHeterogeneousMode")(found[0], ctypes.byref(wrong)),
}))
"""


def client(state_dir: str, name: str) -> dict[str, object]:
    folder = str(Path(control.library(state_dir, name)).parent)
    words = [sys.executable, "-c", CLIENT]
    environment = {"LD_LIBRARY_PATH": folder, "PATH": os.environ["PATH"]}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_mixed_size_mode_with_nvidia_ml_py(state_dir: str) -> None:
    name = control.start(state_dir, "l40s:vfio,tesla-t4:mdev,a2")
    SimClient(state_dir, name).sriov_manage("-e", "0000:01:00.0")
    assert client(state_dir, name) == {
        "names": ["NVIDIA L40S", "Tesla T4", "NVIDIA A2"],
        "index": [0, 1, 2],
        "host": [3, 3, 0],
        "before": [0, -3, -3],
        "set": [0, -3, -3],
        "after": [1, -3, -3],
        "set_scheduler": [0, 0, -3],
        "scheduler": [[2, 0, 0], [2, 0, 0], -3],
        "fixed": [-3, 0, -3],
        "wrong": 25,
    }


INSIDE = """
import pynvml as n

n.nvmlInit()
gpu = n.nvmlDeviceGetHandleByIndex(0)
n.nvmlDeviceSetMigMode(gpu, 1)
one, two = (n.nvmlDeviceCreateGpuInstance(gpu, 47) for _ in range(2))
n.nvmlGpuInstanceSetVgpuHeterogeneousMode(two, 1)
print([n.nvmlGpuInstanceGetVgpuHeterogeneousMode(gi) for gi in (one, two)])

def refusal(act, *words):
    try:
        act(*words)
    except n.NVMLError as refused:
        return refused.value

def state(kind, version, engine=1):
    found = kind()
    found.version, found.engineId = version, engine
    return found

request = state(n.c_nvmlVgpuSchedulerState_v1_t, n.nvmlVgpuSchedulerState_v1)
request.schedulerPolicy, request.enableARRMode = 2, 2
request.schedulerParams.vgpuSchedDataWithARR.frequency = 500
n.nvmlGpuInstanceSetVgpuSchedulerState(two, request)
INFO = n.c_nvmlVgpuSchedulerStateInfo_v1_t, n.nvmlVgpuSchedulerStateInfo_v1
print([n.nvmlGpuInstanceGetVgpuSchedulerState(gi, state(*INFO)).schedulerPolicy for gi in (one, two)])
wrong = state(INFO[0], 7), state(*INFO, engine=2)
print([refusal(n.nvmlGpuInstanceGetVgpuSchedulerState, one, each) for each in wrong])
request.schedulerPolicy = 3
print(refusal(n.nvmlGpuInstanceSetVgpuSchedulerState, two, request))
"""


def test_mixed_size_mode_and_scheduler_of_a_gpu_instance(state_dir: str) -> None:
    name = control.start(state_dir, "rtx-pro-6000:vfio")
    library = str(Path(control.library(state_dir, name)).parent)
    environment = {"LD_LIBRARY_PATH": library, "PATH": os.environ["PATH"]}
    words = [sys.executable, "-c", INSIDE]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "[0, 1]\n[1, 2]\n[25, 2]\n3\n"), done.stderr


def test_a_gpu_that_was_passed_through_is_no_device(state_dir: str) -> None:
    name = control.start(state_dir, "l40s,tesla-t4,a2")
    files = SimFiles(SimClient(state_dir, name))
    files.write("/sys/bus/pci/devices/0000:01:00.0/driver_override", "vfio-pci")
    files.write("/sys/bus/pci/drivers/nvidia/unbind", "0000:01:00.0")
    files.write("/sys/bus/pci/drivers_probe", "0000:01:00.0")
    seen = client(state_dir, name)
    assert (seen["names"], seen["index"]) == (["Tesla T4", "NVIDIA A2"], [0, 1])
