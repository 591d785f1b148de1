"""A client on a simulated node, run as its own process: unmodified nvidia-ml-py that gets only LD_LIBRARY_PATH."""

from __future__ import annotations

import json
from ctypes import byref, c_uint
from typing import Any

import pynvml as nv


def code(function: Any, *arguments: Any) -> int:
    try:
        function(*arguments)
    except nv.NVMLError as error:
        return int(error.value)
    return 0


def text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def profiles(gpu: Any) -> list[list[object]]:
    found: list[list[object]] = []
    for index in range(nv.NVML_GPU_INSTANCE_PROFILE_COUNT):
        for version in (1, 2):
            if code(nv.nvmlDeviceGetGpuInstanceProfileInfo, gpu, index, version) == 0:
                info = nv.nvmlDeviceGetGpuInstanceProfileInfo(gpu, index, version)
                found.append([info.id, info.memorySizeMB, text(getattr(info, "name", ""))])
    return found


def mig_device(gpu: Any, index: int) -> list[object]:
    device = nv.nvmlDeviceGetMigDeviceHandleByIndex(gpu, index)
    attributes = nv.nvmlDeviceGetAttributes(device)
    uuid = nv.nvmlDeviceGetUUID(device)
    return [
        nv.nvmlDeviceGetName(device),
        [nv.nvmlDeviceGetGpuInstanceId(device), nv.nvmlDeviceGetComputeInstanceId(device)],
        attributes.multiprocessorCount,
        attributes.memorySizeMB,
        nv.nvmlDeviceGetMemoryInfo(device).total >> 20,
        nv.nvmlDeviceGetIndex(nv.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device)),
        nv.nvmlDeviceGetUUID(nv.nvmlDeviceGetHandleByUUID(uuid)) == uuid,
        nv.nvmlDeviceIsMigDeviceHandle(device).value,
    ]


def main() -> None:
    nv.nvmlInit()
    seen: dict[str, Any] = {"driver": nv.nvmlSystemGetDriverVersion(), "count": nv.nvmlDeviceGetCount()}
    gpu = nv.nvmlDeviceGetHandleByIndex(0)
    seen["name"] = nv.nvmlDeviceGetName(gpu)
    seen["pci"] = text(nv.nvmlDeviceGetPciInfo(gpu).busId)
    seen["same"] = nv.nvmlDeviceGetUUID(nv.nvmlDeviceGetHandleByPciBusId("0000:01:00.0")) == nv.nvmlDeviceGetUUID(gpu)
    seen["early"] = code(nv.nvmlDeviceCreateGpuInstance, gpu, 19)
    seen["activation"] = nv.nvmlDeviceSetMigMode(gpu, 1)
    seen["mode"] = nv.nvmlDeviceGetMigMode(gpu)
    seen["profiles"] = profiles(gpu)
    seen["past"] = code(nv.nvmlDeviceGetGpuInstanceProfileInfo, gpu, nv.NVML_GPU_INSTANCE_PROFILE_COUNT)
    count = c_uint()
    nv.nvmlDeviceGetGpuInstancePossiblePlacements(gpu, 9, None, byref(count))
    places = (nv.c_nvmlGpuInstancePlacement_t * count.value)()
    nv.nvmlDeviceGetGpuInstancePossiblePlacements(gpu, 9, places, byref(count))
    seen["places"] = [[p.start, p.size] for p in places]
    half = nv.nvmlDeviceCreateGpuInstanceWithPlacement(gpu, 9, byref(places[1]))
    small = nv.nvmlDeviceCreateGpuInstance(gpu, 19)
    seen["refusals"] = [
        code(nv.nvmlDeviceCreateGpuInstanceWithPlacement, gpu, 9, byref(places[1])),
        code(nv.nvmlDeviceCreateGpuInstanceWithPlacement, gpu, 9, byref(nv.c_nvmlGpuInstancePlacement_t(1, 4))),
        code(nv.nvmlDeviceCreateGpuInstance, gpu, 99),
        code(nv.nvmlDeviceGetGpuInstanceById, gpu, 14),
        code(nv.nvmlDeviceGetMigDeviceHandleByIndex, gpu, 0),
    ]
    info = nv.nvmlGpuInstanceGetInfo(half)
    seen["half"] = [info.id, info.profileId, info.placement.start, info.placement.size]
    seen["free"] = nv.nvmlDeviceGetGpuInstanceRemainingCapacity(gpu, 19)
    seen["ci_profile"] = text(nv.nvmlGpuInstanceGetComputeInstanceProfileInfo(half, 2, 0).name)
    compute = nv.nvmlGpuInstanceCreateComputeInstance(half, 2)
    nv.nvmlGpuInstanceCreateComputeInstance(small, 0)
    seen["busy"] = code(nv.nvmlGpuInstanceDestroy, half)
    seen["max"] = nv.nvmlDeviceGetMaxMigDeviceCount(gpu)
    seen["devices"] = [mig_device(gpu, index) for index in range(2)]
    nv.nvmlComputeInstanceDestroy(compute)
    seen["stale"] = [code(nv.nvmlComputeInstanceDestroy, compute), code(nv.nvmlComputeInstanceGetInfo_v2, compute)]
    nv.nvmlGpuInstanceDestroy(half)
    seen["gone"] = code(nv.nvmlGpuInstanceGetInfo, half)
    seen["wrong"] = [code(nv.nvmlGpuInstanceDestroy, gpu), code(nv.nvmlDeviceGetName, small)]
    seen["plain"] = code(nv.nvmlDeviceGetMigMode, nv.nvmlDeviceGetHandleByIndex(1))
    nv.nvmlShutdown()
    seen["closed"] = code(nv.nvmlDeviceGetCount)
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
