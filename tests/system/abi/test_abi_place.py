"""Location of a GPU through the ABI: PCI class, NUMA node and fabric, in every published version of the structures."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_uint, c_ulong, c_void_p
from typing import Any

import pynvml as nv
import pytest

from aliquot.sim import lifecycle as control


@pytest.fixture
def rack(state_dir: str) -> ctypes.CDLL:
    lib = ctypes.CDLL(control.library(state_dir, control.start(state_dir, "gb200*5,rtx-a6000")))
    assert lib.nvmlInit_v2() == 0
    return lib


def device(lib: ctypes.CDLL, index: int) -> c_void_p:
    handle = c_void_p()
    assert lib.nvmlDeviceGetHandleByIndex_v2(c_uint(index), byref(handle)) == 0
    return handle


def test_fabric(rack: ctypes.CDLL) -> None:
    # The structures come from nvidia-ml-py, so a wrong layout in the library cannot match a wrong layout in the test.
    gpu = device(rack, 0)
    seen = []
    first = nv.c_nvmlGpuFabricInfo_t()
    assert rack.nvmlDeviceGetGpuFabricInfo(gpu, byref(first)) == 0
    structures: list[Any] = [nv.c_nvmlGpuFabricInfo_v2_t(), nv.c_nvmlGpuFabricInfo_v3_t()]
    for info in structures:
        assert rack.nvmlDeviceGetGpuFabricInfoV(gpu, byref(info)) == 0
    for info in (first, *structures):
        seen.append((bytes(bytearray(info.clusterUuid)).hex(), info.status, info.cliqueId, info.state))
    assert len(set(seen)) == 1
    assert seen[0][1:] == (0, 1, nv.NVML_GPU_FABRIC_STATE_COMPLETED)
    assert int(seen[0][0], 16)
    structures[0].version = 9 << 24 | ctypes.sizeof(structures[0])
    assert rack.nvmlDeviceGetGpuFabricInfoV(gpu, byref(structures[0])) == nv.NVML_ERROR_ARGUMENT_VERSION_MISMATCH
    assert rack.nvmlDeviceGetGpuFabricInfo(device(rack, 5), byref(first)) == nv.NVML_ERROR_NOT_SUPPORTED


def test_pci_class_and_numa_node(rack: ctypes.CDLL) -> None:
    found = []
    for index in range(6):
        info = nv.nvmlPciInfoExt_v1_t(version=nv.nvmlPciInfoExt_v1)
        words = (c_ulong * 2)()
        assert rack.nvmlDeviceGetPciInfoExt(device(rack, index), byref(info)) == 0
        assert rack.nvmlDeviceGetMemoryAffinity(device(rack, index), c_uint(2), words, c_uint(0)) == 0
        found.append((info.baseClass, info.subClass, list(words)))
    assert found == [(3, 2, [1, 0])] * 4 + [(3, 2, [2, 0]), (3, 0, [2, 0])]
