"""GPM through unmodified nvidia-ml-py in its own process, on GPUs with and without GPM."""

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
report = {"support": nvmlGpmQueryDeviceSupport(gpu).isSupportedDevice}
one, two = nvmlGpmSampleAlloc(), nvmlGpmSampleAlloc()
report["whole"] = refused(nvmlGpmSampleGet, gpu, one) or refused(nvmlGpmSampleGet, gpu, two)
if not report["whole"]:
    report["share"] = share(one, two, NVML_GPM_METRIC_SM_UTIL, NVML_GPM_METRIC_GRAPHICS_UTIL, NVML_GPM_METRIC_FP64_UTIL)
    report["gone"] = refused(nvmlGpmMigSampleGet, gpu, 13, one)
    report["instances"] = {}
    for instance in map(int, sys.argv[1:]):
        nvmlGpmMigSampleGet(gpu, instance, one)
        report["mixed"] = refused(share, one, two, NVML_GPM_METRIC_SM_UTIL)
        other = nvmlGpmSampleAlloc()
        nvmlGpmMigSampleGet(gpu, instance, other)
        report["instances"][instance] = share(one, other, NVML_GPM_METRIC_SM_UTIL)
        nvmlGpmSampleFree(other)
    fresh = nvmlGpmSampleAlloc()
    report["empty"] = refused(share, fresh, two, NVML_GPM_METRIC_SM_UTIL)
    nvmlGpmSampleFree(fresh)
wrong = c_nvmlGpmMetricsGet_t()
wrong.version = 7
report["version"] = refused(nvmlGpmMetricsGet, wrong)
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
report["devices"] = devices
nvmlGpmSampleFree(one)
nvmlGpmSampleFree(two)
report["streaming"] = refused(nvmlGpmQueryIfStreamingEnabled, gpu)
nvmlShutdown()
report["closed"] = refused(nvmlGpmSampleAlloc)
print(json.dumps(report))
"""


def client(state_dir: str, name: str, *words: str) -> dict[str, Any]:
    environment = {"LD_LIBRARY_PATH": str(Path(control.library(state_dir, name)).parent), "PATH": os.environ["PATH"]}
    command = [sys.executable, "-c", SCRIPT, *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    reported: dict[str, Any] = json.loads(done.stdout)
    return reported


@pytest.mark.parametrize("template", ["h100-80gb-hbm3", "b200"])
def test_a_whole_gpu(state_dir: str, template: str) -> None:
    name = control.start(state_dir, template)
    SimClient(state_dir, name).hold(0, busy=0.35)
    reported = client(state_dir, name)
    assert (reported["support"], reported["whole"]) == (1, 0)
    assert reported["share"] == [[0, 35.0], [0, 35.0], [3, 0.0]], (
        "each metric that is not simulated returns its own error"
    )
    assert (reported["gone"], reported["empty"], reported["version"], reported["streaming"]) == (2, 2, 25, 3)
    assert (reported["devices"], reported["closed"]) == ([], 1)


def test_gpu_instances(state_dir: str) -> None:
    name = control.start(state_dir, "h100-80gb-hbm3")
    node = SimClient(state_dir, name)
    node.set_mode(0, True)
    half, small = node.create(0, "3g.40gb"), node.create(0, "1g.10gb")
    node.hold(0, half, memory=5000, busy=0.5)
    node.hold(0, half, memory=100, busy=0.2)
    reported = client(state_dir, name, str(half), str(small))
    assert reported["instances"] == {str(half): [[0, 70.0]], str(small): [[0, 0.0]]}
    assert reported["share"][0] == [0, pytest.approx(30.0)], "three of seven slices are busy to seven tenths"
    assert (reported["gone"], reported["mixed"]) == (2, 2), "no such instance; samples of two different things"
    assert reported["devices"] == [[half, 5100, 40448, [5000, 100], 3], [small, 0, 9984, [], 3]]


def test_ampere_has_no_gpm(state_dir: str) -> None:
    name = control.start(state_dir, "a100-sxm4-40gb")
    reported = client(state_dir, name)
    assert (reported["support"], reported["whole"]) == (0, 3)
