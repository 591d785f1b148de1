"""Replacement for udevd's events to libvirtd, for the devices of a simulated node.

The program watches the node's buses and multicasts an event when a device appears, disappears or gets another driver.
Run it inside the bed's network namespace: ``python uevents.py STATE_DIR NODE``. It writes ``ready`` after its first
scan and ends with the node. The wire format is libudev's (systemd, src/libsystemd/sd-device/device-monitor.c).
"""

from __future__ import annotations

import contextlib
import socket
import struct
import sys
import time

from aliquot.errors import AliquotError
from aliquot.sim.client import SimClient
from aliquot.sim.files import SimFiles

_KOBJECT_UEVENT = 15
_UDEV_GROUP = 2
_MAGIC = 0xFEEDCAFE
_HEADER = struct.Struct("=8sIIIIIIII")
_POLL_S = 0.1
_PACE_S = 0.25
"""Pause between two events. While an event waits to be read, libvirtd's event loop spins beside the working thread."""

State = dict[str, tuple[str, str]]
"""Path below /sys -> subsystem and the content of ``uevent`` (a line each, including the driver)."""


def seen(files: SimFiles) -> State:
    found: State = {}
    for subsystem in ("pci", "mdev"):
        bus = f"/sys/bus/{subsystem}/devices"
        try:
            names = files.names(bus)
        except OSError:
            continue  # no such bus in this kernel
        for name in names:
            try:
                where = files.real(f"{bus}/{name}")
            except OSError:
                continue  # it disappeared during the scan
            found[where.removeprefix("/sys")] = (subsystem, _uevent(files, where))
    return found


def _uevent(files: SimFiles, where: str) -> str:
    try:
        return files.read(f"{where}/uevent")
    except OSError:
        return ""


class Speaker:
    """Multicasts as udevd does. Only root may, and receivers check the sender's uid."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _KOBJECT_UEVENT)
        self._socket.bind((0, 0))
        self._number = 0

    def report(self, action: str, path: str, subsystem: str, uevent: str) -> None:
        self._number += 1
        facts = {
            "ACTION": action,
            "DEVPATH": path,
            "SUBSYSTEM": subsystem,
            "SEQNUM": str(self._number),
            "USEC_INITIALIZED": str(time.monotonic_ns() // 1000),
        }
        lines = [*(f"{key}={value}" for key, value in facts.items()), *uevent.splitlines()]
        body = b"".join(f"{line}\0".encode() for line in lines)
        head = _HEADER.pack(b"libudev\0", socket.htonl(_MAGIC), _HEADER.size, _HEADER.size, len(body), 0, 0, 0, 0)
        with contextlib.suppress(ConnectionRefusedError):  # no receiver is ready yet
            self._socket.sendto(head + body, (0, _UDEV_GROUP))


def differences(before: State, now: State) -> list[tuple[str, str, str, str]]:
    """Return events in the order of a kernel: children are removed first and added last."""
    gone = [("remove", p, *before[p]) for p in sorted(before.keys() - now.keys(), reverse=True)]
    new = [("add", p, *now[p]) for p in sorted(now.keys() - before.keys())]
    both = sorted(p for p in before.keys() & now.keys() if before[p] != now[p])
    changed = [("bind" if "DRIVER=" in now[p][1] else "unbind", p, *now[p]) for p in both]
    return [*gone, *new, *changed]


def main(state_dir: str, name: str) -> None:
    node = SimClient(state_dir, name)
    files = SimFiles(node)
    speaker = Speaker()
    last = seen(files)
    print("ready", flush=True)
    while True:
        time.sleep(_POLL_S)
        try:
            now = seen(files)
        except AliquotError:
            return  # the node was stopped
        for event in differences(last, now):
            speaker.report(*event)
            time.sleep(_PACE_S)
        last = now


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
