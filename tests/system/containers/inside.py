"""Print what an unmodified NVML client observes inside a container, as JSON."""

from __future__ import annotations

import glob
import json
import os
from ctypes import byref, c_uint
from typing import Any

import pynvml as nv


def code(function: Any, *arguments: Any) -> int:
    try:
        function(*arguments)
    except nv.NVMLError as error:
        return int(error.value)
    return 0


def mig_devices(gpu: Any) -> list[dict[str, Any]]:
    found = []
    for index in range(nv.nvmlDeviceGetMaxMigDeviceCount(gpu)):
        if code(nv.nvmlDeviceGetMigDeviceHandleByIndex, gpu, index):
            continue
        device = nv.nvmlDeviceGetMigDeviceHandleByIndex(gpu, index)
        found.append(
            {
                "index": index,
                "uuid": nv.nvmlDeviceGetUUID(device),
                "name": nv.nvmlDeviceGetName(device),
                "memory_mib": nv.nvmlDeviceGetMemoryInfo(device).total >> 20,
            }
        )
    return found


def gpus() -> list[dict[str, Any]]:
    found = []
    for index in range(nv.nvmlDeviceGetCount()):
        gpu = nv.nvmlDeviceGetHandleByIndex(index)
        found.append(
            {
                "uuid": nv.nvmlDeviceGetUUID(gpu),
                "index": nv.nvmlDeviceGetIndex(gpu),
                "minor": nv.nvmlDeviceGetMinorNumber(gpu),
                "mig": mig_devices(gpu),
                "listing": code(nv.nvmlDeviceGetGpuInstances, gpu, 9, (nv.c_nvmlGpuInstance_t * 8)(), byref(c_uint())),
            }
        )
    return found


def main() -> None:
    seen: dict[str, Any] = {"nodes": sorted(glob.glob("/dev/nvidia*") + glob.glob("/dev/nvidia-caps/*"))}
    seen["env"] = {k: os.environ[k] for k in ("NVIDIA_VISIBLE_DEVICES", "LD_LIBRARY_PATH") if k in os.environ}
    try:
        nv.nvmlInit()
    except nv.NVMLError as error:
        seen["init"] = int(error.value)
    else:
        seen["init"] = 0
        seen["gpus"] = gpus()
        seen["past"] = code(nv.nvmlDeviceGetHandleByIndex, nv.nvmlDeviceGetCount())
        others = json.loads(os.environ.get("OTHERS", "[]"))
        seen["others"] = [code(nv.nvmlDeviceGetHandleByUUID, uuid) for uuid in others]
        nv.nvmlShutdown()
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
