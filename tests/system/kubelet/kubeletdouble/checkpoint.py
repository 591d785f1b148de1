"""The kubelet's checkpoint: the devices of pods, on disk over restarts. File name and format are the kubelet's."""

from __future__ import annotations

import base64
import json
import os
import zlib
from dataclasses import dataclass
from pathlib import Path

from aliquot.kubernetes.device_plugin.protos import deviceplugin_pb2 as dp

NAME = "kubelet_internal_checkpoint"


@dataclass(frozen=True)
class Entry:
    """Devices of a container for one resource, by NUMA node (-1: none), and the plugin's answer."""

    uid: str
    container: str
    resource: str
    devices: dict[int, tuple[str, ...]]
    answer: dp.ContainerAllocateResponse

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(each for ids in self.devices.values() for each in ids))


def write(directory: Path, entries: list[Entry], registered: dict[str, list[str]]) -> None:
    data = {
        "PodDeviceEntries": [
            {
                "PodUID": e.uid,
                "ContainerName": e.container,
                "ResourceName": e.resource,
                "DeviceIDs": {str(node): list(ids) for node, ids in e.devices.items()},
                "AllocResp": base64.b64encode(e.answer.SerializeToString()).decode(),
            }
            for e in entries
        ],
        "RegisteredDevices": registered,
    }
    text = json.dumps({"Data": data, "Checksum": zlib.crc32(json.dumps(data).encode())})
    scratch = directory / f".{NAME}"
    scratch.write_text(text)
    os.replace(scratch, directory / NAME)


def read(directory: Path) -> tuple[list[Entry], list[str]]:
    """Read the entries, and the names of the registered resources."""
    path = directory / NAME
    if not path.exists():
        return [], []
    whole = json.loads(path.read_text())
    data = whole["Data"]
    if zlib.crc32(json.dumps(data).encode()) != whole["Checksum"]:
        raise ValueError("checkpoint is corrupted")
    entries = [
        Entry(
            e["PodUID"],
            e["ContainerName"],
            e["ResourceName"],
            {int(node): tuple(ids) for node, ids in e["DeviceIDs"].items()},
            dp.ContainerAllocateResponse.FromString(base64.b64decode(e["AllocResp"])),
        )
        for e in data["PodDeviceEntries"]
    ]
    return entries, list(data["RegisteredDevices"])
