"""The vGPU scheduler in nvidia-smi's words, as NVIDIA's guide shows them."""

from __future__ import annotations

from aliquot.hardware.nvidia_smi.vgpu_scheduler import parse_schedulers, set_command

REPORT = """\
GPU 00000000:65:00.0
    Active vGPUs                          : 0
    Scheduler Policy                      : Equal Share
GPU 00000000:66:00.0
    Active vGPUs                          : 1
    Scheduler Policy                      : Equal Share
    ARR Mode                              : Enabled
    Average Factor                        : 33
    Time Slice(ns)                        : 2083333
GPU 00000000:67:00.0
    Active vGPUs                          : 1
    Scheduler Policy                      : Fixed Share
    ARR Mode                              : Disabled
    Time Slice(ns)                        : 24000000
GPU 00000000:68:00.0
    Active vGPUs                          : 1
    Scheduler Policy                      : Fixed Share
    Average Factor                        : 33
    Time Slice(ns)                        : 1041666
GPU 00000000:69:00.0
    Active vGPUs                          : 0
    Scheduler Policy                      : Something New
"""


def test_a_report() -> None:
    assert parse_schedulers(REPORT) == {
        "0000:65:00.0": "equal-share",
        "0000:66:00.0": "equal-share,480Hz",
        "0000:67:00.0": "fixed-share,24ms",
        "0000:68:00.0": "fixed-share,960Hz",  # R595 and later report no mode
        "0000:69:00.0": "",
    }
    assert parse_schedulers("No supported devices in vGPU mode\n") == {}


def test_commands() -> None:
    command = ("vgpu", "set-scheduler-state", "-i", "0000:65:00.0", "-p")
    assert set_command("0000:65:00.0", "best-effort") == (*command, "1")
    assert set_command("0000:65:00.0", "equal-share,2ms") == (*command, "2", "-a", "0", "-ts", "2000000")
    assert set_command("0000:65:00.0", "fixed-share,480Hz") == (*command, "3", "-a", "1", "-asf", "480")
