"""GPM through an unmodified client: nvidia-ml-py in a process of its own, on GPUs that have it and on others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from aliquot.sim import lifecycle as control
from aliquot.sim.client import SimClient

SCRIPT = """
import json, sys
from pynvml import *

def refused(call, *arguments):
    try:
        call(*arguments)
    except NVMLError as error:
        return error.value
    return 0

def share(one, two, *ids):
    wanted = c_nvmlGpmMetricsGet_t()
    wanted.version, wanted.numMetrics, wanted.sample1, wanted.sample2 = NVML_GPM_METRICS_GET_VERSION, len(ids), one, two
    for n, each in enumerate(ids):
        wanted.metrics[n].metricId = each
    nvmlGpmMetricsGet(wanted)
    return [[m.nvmlReturn, m.value] for m in wanted.metrics[: len(ids)]]

nvmlInit()
gpu = nvmlDeviceGetHandleByIndex(0)
told = {"support": nvmlGpmQueryDeviceSupport(gpu).isSupportedDevice}
one, two = nvmlGpmSampleAlloc(), nvmlGpmSampleAlloc()
told["whole"] = refused(nvmlGpmSampleGet, gpu, one) or refused(nvmlGpmSampleGet, gpu, two)
if not told["whole"]:
    told["share"] = share(one, two, NVML_GPM_METRIC_SM_UTIL, NVML_GPM_METRIC_GRAPHICS_UTIL, NVML_GPM_METRIC_FP64_UTIL)
    told["gone"] = refused(nvmlGpmMigSampleGet, gpu, 13, one)
    told["instances"] = {}
    for instance in map(int, sys.argv[1:]):
        nvmlGpmMigSampleGet(gpu, instance, one)
        told["mixed"] = refused(share, one, two, NVML_GPM_METRIC_SM_UTIL)
        other = nvmlGpmSampleAlloc()
        nvmlGpmMigSampleGet(gpu, instance, other)
        told["instances"][instance] = share(one, other, NVML_GPM_METRIC_SM_UTIL)
        nvmlGpmSampleFree(other)
    fresh = nvmlGpmSampleAlloc()
    told["empty"] = refused(share, fresh, two, NVML_GPM_METRIC_SM_UTIL)
    nvmlGpmSampleFree(fresh)
wrong = c_nvmlGpmMetricsGet_t()
wrong.version = 7
told["version"] = refused(nvmlGpmMetricsGet, wrong)
devices = []
for n in range(nvmlDeviceGetMaxMigDeviceCount(gpu)):
    try:
        device = nvmlDeviceGetMigDeviceHandleByIndex(gpu, n)
    except NVMLError:
        continue
    memory = nvmlDeviceGetMemoryInfo(device, version=nvmlMemory_v2)
    rows = [p.usedGpuMemory >> 20 for p in nvmlDeviceGetComputeRunningProcesses(device)]
    rates = refused(nvmlDeviceGetUtilizationRates, device)
    devices.append([nvmlDeviceGetGpuInstanceId(device), memory.used >> 20, memory.total >> 20, rows, rates])
told["devices"] = devices
nvmlGpmSampleFree(one)
nvmlGpmSampleFree(two)
told["streaming"] = refused(nvmlGpmQueryIfStreamingEnabled, gpu)
nvmlShutdown()
told["closed"] = refused(nvmlGpmSampleAlloc)
print(json.dumps(told))
"""


def client(state_dir: str, name: str, *words: str) -> dict[str, Any]:
    environment = {"LD_LIBRARY_PATH": str(Path(control.library(state_dir, name)).parent), "PATH": os.environ["PATH"]}
    command = [sys.executable, "-c", SCRIPT, *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


@pytest.mark.parametrize("template", ["h100-80gb-hbm3", "b200"])
def test_a_whole_gpu(state_dir: str, template: str) -> None:
    name = control.start(state_dir, template)
    SimClient(state_dir, name).hold(0, busy=0.35)
    told = client(state_dir, name)
    assert (told["support"], told["whole"]) == (1, 0)
    assert told["share"] == [[0, 35.0], [0, 35.0], [3, 0.0]], "metrics that are not simulated say so, each by itself"
    assert (told["gone"], told["empty"], told["version"], told["streaming"]) == (2, 2, 25, 3)
    assert (told["devices"], told["closed"]) == ([], 1)


def test_gpu_instances(state_dir: str) -> None:
    name = control.start(state_dir, "h100-80gb-hbm3")
    node = SimClient(state_dir, name)
    node.set_mode(0, True)
    half, small = node.create(0, "3g.40gb"), node.create(0, "1g.10gb")
    node.hold(0, half, memory=5000, busy=0.5)
    node.hold(0, half, memory=100, busy=0.2)
    told = client(state_dir, name, str(half), str(small))
    assert told["instances"] == {str(half): [[0, 70.0]], str(small): [[0, 0.0]]}
    assert told["share"][0] == [0, pytest.approx(30.0)], "three of seven slices are busy to seven tenths"
    assert (told["gone"], told["mixed"]) == (2, 2), "no such instance; samples of two different things"
    assert told["devices"] == [[half, 5100, 40448, [5000, 100], 3], [small, 0, 9984, [], 3]]


def test_ampere_has_no_gpm(state_dir: str) -> None:
    name = control.start(state_dir, "a100-sxm4-40gb")
    told = client(state_dir, name)
    assert (told["support"], told["whole"]) == (0, 3)
