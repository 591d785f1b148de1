"""Replacement for ``nvidia-smi -L`` in a container of a page: reads NVML through nvidia-ml-py."""

from __future__ import annotations

import pynvml


def main() -> None:
    pynvml.nvmlInit()
    for number in range(pynvml.nvmlDeviceGetCount()):
        gpu = pynvml.nvmlDeviceGetHandleByIndex(number)
        print(f"GPU {number}: {pynvml.nvmlDeviceGetName(gpu)} (UUID: {pynvml.nvmlDeviceGetUUID(gpu)})")
        for place in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(gpu)):
            try:
                one = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, place)
            except pynvml.NVMLError:
                continue
            profile = pynvml.nvmlDeviceGetName(one).partition("MIG ")[2]
            print(f"  MIG {profile}  Device {place:2}: (UUID: {pynvml.nvmlDeviceGetUUID(one)})")


if __name__ == "__main__":
    main()
