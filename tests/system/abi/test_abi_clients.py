"""Unmodified NVML clients on a simulated node: nvidia-ml-py, nvitop and gpustat, each in its own process."""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import subprocess
import sys
from ctypes import byref, c_char_p, c_uint, c_void_p, create_string_buffer
from pathlib import Path
from typing import Any

import pytest

from aliquot.sim import lifecycle as control
from aliquot.sim.client import SimClient

HERE = Path(__file__).resolve().parent


def run(state_dir: str, name: str, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a client that gets only LD_LIBRARY_PATH."""
    environment = {
        "LD_LIBRARY_PATH": str(Path(control.library(state_dir, name)).parent),
        "PATH": os.environ["PATH"],
        "HOME": state_dir,
        "TERM": "xterm",
        "LANG": "C.UTF-8",
    }
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def name(state_dir: str) -> str:
    return control.start(state_dir, "a100-sxm4-40gb,t4")


def test_nvidia_ml_py(state_dir: str, name: str) -> None:
    done = run(state_dir, name, sys.executable, str(HERE / "client_script.py"))
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout)
    assert (seen["driver"], seen["count"], seen["name"]) == ("580.65.06", 2, "NVIDIA A100-SXM4-40GB")
    assert (seen["pci"], seen["same"]) == ("00000000:01:00.0", True)
    assert (seen["early"], seen["activation"], seen["mode"]) == (3, 0, [1, 1])
    assert [p[2] for p in seen["profiles"] if p[2]] == [
        *("MIG 1g.5gb", "MIG 2g.10gb", "MIG 3g.20gb", "MIG 4g.20gb", "MIG 7g.40gb", "MIG 1g.5gb+me", "MIG 1g.10gb"),
    ]
    assert [p[:2] for p in seen["profiles"][::2]] == [p[:2] for p in seen["profiles"][1::2]]
    assert (seen["past"], seen["places"]) == (2, [[0, 4], [4, 4]])
    assert seen["refusals"] == [23, 2, 3, 6, 6]
    assert (seen["half"], seen["free"], seen["ci_profile"]) == ([2, 9, 4, 4], 3, "MIG 3g.20gb")
    assert (seen["busy"], seen["max"]) == (19, 7)
    assert seen["devices"] == [
        ["NVIDIA A100-SXM4-40GB MIG 3g.20gb", [2, 0], 42, 20096, 20096, 0, True, 1],
        ["NVIDIA A100-SXM4-40GB MIG 1g.5gb", [7, 0], 14, 4864, 4864, 0, True, 1],
    ]
    assert (seen["stale"], seen["gone"], seen["wrong"], seen["plain"], seen["closed"]) == ([2, 2], 2, [2, 2], 3, 1)
    assert SimClient(state_dir, name).show()["sessions"] == []


def cut(state_dir: str, name: str) -> None:
    node = SimClient(state_dir, name)
    node.set_mode(0, True)
    for profile in ("3g.20gb", "1g.5gb"):
        node.create(0, profile)


def test_nvitop_sees_the_mig_devices(state_dir: str, name: str) -> None:
    if importlib.util.find_spec("nvitop") is None:
        pytest.skip("nvitop is not installed")
    cut(state_dir, name)
    done = run(state_dir, name, sys.executable, "-m", "nvitop", "-1", "--ascii")
    assert done.returncode == 0, done.stderr
    assert "A100-SXM4-40GB" in done.stdout
    assert "3g.20gb @ GI/CI: 2/0" in done.stdout
    assert "1g.5gb @ GI/CI: 7/0" in done.stdout
    assert "Tesla T4" in done.stdout
    assert "ERROR" not in done.stdout + done.stderr


def test_gpustat_sees_the_node(state_dir: str, name: str) -> None:
    if importlib.util.find_spec("gpustat") is None:
        pytest.skip("gpustat is not installed")
    cut(state_dir, name)
    SimClient(state_dir, name).hold(1)
    done = run(state_dir, name, sys.executable, "-m", "gpustat", "--json")
    assert done.returncode == 0, done.stderr
    gpus = json.loads(done.stdout)["gpus"]
    assert [(g["name"], g["memory.total"]) for g in gpus] == [("NVIDIA A100-SXM4-40GB", 40960), ("Tesla T4", 15360)]
    assert [g["utilization.gpu"] for g in gpus] == [None, 50], "a GPU in MIG mode has no utilisation of its own"


def load(state_dir: str, name: str) -> ctypes.CDLL:
    return ctypes.CDLL(control.library(state_dir, name))


def device(lib: ctypes.CDLL, index: int = 0) -> c_void_p:
    handle = c_void_p()
    assert lib.nvmlDeviceGetHandleByIndex_v2(c_uint(index), byref(handle)) == 0
    return handle


def test_sizes_and_versions_of_structures(state_dir: str, name: str) -> None:
    # The library refuses wrong versions. Version 3, which nvidia-ml-py does not bind, returns capabilities.
    lib = load(state_dir, name)
    assert lib.nvmlInit_v2() == 0
    gpu = device(lib)

    class V3(ctypes.Structure):
        _fields_ = (
            *((n, c_uint) for n in ("version", "id", "slices", "count", "sm", "ce", "dec", "enc", "jpeg", "ofa")),
            ("memory", ctypes.c_ulonglong),
            ("name", ctypes.c_char * 96),
            ("capabilities", c_uint),
        )

    info = V3(version=3 << 24 | ctypes.sizeof(V3))
    assert lib.nvmlDeviceGetGpuInstanceProfileInfoV(gpu, c_uint(2), byref(info)) == 0
    assert (info.id, info.slices, info.sm, info.memory, info.name) == (9, 3, 42, 20096, b"MIG 3g.20gb")
    assert lib.nvmlDeviceGetGpuInstanceProfileInfoByIdV(gpu, c_uint(19), byref(info)) == 0
    assert info.slices == 1
    info.version = 4 << 24 | ctypes.sizeof(V3)
    assert lib.nvmlDeviceGetGpuInstanceProfileInfoV(gpu, c_uint(2), byref(info)) == 25
    memory = (ctypes.c_ulonglong * 5)(1)
    assert lib.nvmlDeviceGetMemoryInfo_v2(gpu, memory) == 25
    memory[0] = 2 << 24 | 40
    assert lib.nvmlDeviceGetMemoryInfo_v2(gpu, memory) == 0
    assert memory[1] == 40960 << 20
    text = create_string_buffer(4)
    assert lib.nvmlDeviceGetName(gpu, text, c_uint(4)) == 7
    assert lib.nvmlDeviceGetName(c_void_p(12345), text, c_uint(4)) == 2
    assert lib.nvmlDeviceGetName(None, text, c_uint(4)) == 2
    lib.nvmlErrorString.restype = c_char_p
    assert lib.nvmlErrorString(19) == b"In use by another client"
    assert lib.nvmlErrorString(999) == b"Unknown Error"
    assert lib.nvmlShutdown() == 0
    assert lib.nvmlShutdown() == 1


def test_graphics_profiles_show_in_the_capabilities(state_dir: str) -> None:
    lib = load(state_dir, control.start(state_dir, "rtx-pro-6000"))
    assert lib.nvmlInit_v2() == 0
    words = (c_uint * 38)(3 << 24 | 152)
    assert lib.nvmlDeviceGetGpuInstanceProfileInfoV(device(lib), c_uint(10), words) == 0
    assert (words[1], words[36]) == (47, 2)
    assert lib.nvmlDeviceGetGpuInstanceProfileInfoV(device(lib), c_uint(0), words) == 0
    assert (words[1], words[36]) == (14, 0)
    assert lib.nvmlShutdown() == 0


def test_a_long_state_directory(tmp_path: Path) -> None:
    path = tmp_path
    while len(str(path)) < 200:
        path = path / ("long" * 10)
    state_dir = str(path)
    try:
        name = control.start(state_dir, "a30")
        count = "import pynvml as n; n.nvmlInit(); print(n.nvmlDeviceGetCount())"
        done = run(state_dir, name, sys.executable, "-c", count)
        assert (done.stdout, done.stderr) == ("1\n", "")
    finally:
        control.stop(state_dir)
