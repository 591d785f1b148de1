"""Event sets through unmodified nvidia-ml-py, in its own process."""

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
import json, sys, time
from pynvml import *
nvmlInit()
gpu, other = (nvmlDeviceGetHandleByIndex(n) for n in (0, 1))
bits = nvmlDeviceGetSupportedEventTypes(gpu)
events = nvmlEventSetCreate()
nvmlDeviceRegisterEvents(gpu, nvmlEventTypeXidCriticalError, events)
try:
    nvmlDeviceRegisterEvents(gpu, nvmlEventTypePState, events)
except NVMLError as refused:
    pstate = refused.value
print(json.dumps([bits, pstate]), flush=True)
for line in sys.stdin:
    start = time.monotonic()
    try:
        data = nvmlEventSetWait_v2(events, int(line))
        answer = [nvmlDeviceGetIndex(data.device), data.eventType, data.eventData,
                  data.gpuInstanceId, data.computeInstanceId]
    except NVMLError as refused:
        answer = [refused.value]
    print(json.dumps([answer, time.monotonic() - start]), flush=True)
nvmlEventSetFree(events)
nvmlShutdown()
"""


@pytest.fixture
def name(state_dir: str) -> str:
    return control.start(state_dir, "a100-sxm4-40gb*2")


def test_a_monitor_gets_the_xids_of_the_gpus_that_it_asked_for(state_dir: str, name: str) -> None:
    environment = {"LD_LIBRARY_PATH": str(Path(control.library(state_dir, name)).parent), "PATH": os.environ["PATH"]}
    node = SimClient(state_dir, name)
    node.set_mode(0, True)
    instance = node.create(0, "3g.20gb")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", SCRIPT], env=environment, text=True, **pipes) as monitor:  # type: ignore[call-overload]

        def line() -> Any:
            return json.loads(monitor.stdout.readline())

        def wait(milliseconds: int) -> None:
            print(milliseconds, file=monitor.stdin)
            monitor.stdin.flush()

        assert line() == [0x18, 3], "PState events are not supported on these boards"
        wait(0)
        assert line()[0] == [10]
        node.inject_fault("xid", gpu=0, code=48)
        node.inject_fault("xid", gpu=1, code=48)
        node.inject_fault("xid", gpu=0, code=95, instance=f"{instance}/0")
        wait(0)
        assert line()[0] == [0, 8, 48, 0xFFFFFFFF, 0xFFFFFFFF]
        wait(0)
        assert line()[0] == [0, 8, 95, instance, 0]
        wait(300)
        answer, took = line()
        assert answer == [10]
        assert took >= 0.3
        wait(5000)
        node.inject_fault("xid", gpu=0, code=79)
        answer, took = line()
        assert answer[2] == 79
        assert took < 4, "an event ends the wait"
        monitor.stdin.close()
        assert monitor.wait(20) == 0
    calls = [c["call"] for c in node.calls()]
    assert calls.count("EventSetCreate") == calls.count("EventSetFree") == 1
