"""Holders of VFIO devices, found in ``/proc``, where every open file of every process is a link.

If some processes cannot be inspected, every vGPU counts as held.
"""

from __future__ import annotations

import errno
from functools import cached_property
from itertools import pairwise

from aliquot.core.model.inventory import UNKNOWN_HOLDER, Holder
from aliquot.hardware.kernel.errors import errno_name
from aliquot.hardware.kernel_files import KernelFiles

PROC = "/proc"
_VFIO = "/dev/vfio/"
_CONTAINER = "vfio"
_HOST_PIDS = "pid:[4026531836]"
"""The fixed id of the first pid namespace (PROC_PID_INIT_INO). In any other namespace, processes of the host are
hidden.
"""

_GONE = (errno.ENOENT, errno.ESRCH)


class Holders:
    """A scan for holders, which is made at the first request and then reused."""

    def __init__(self, files: KernelFiles) -> None:
        self._files = files

    def of(self, devices: tuple[str, ...]) -> tuple[Holder, ...]:
        """Return the processes that have one of these files open. If that cannot be determined, return one holder with
        the reason.
        """
        if not devices:
            return ()
        pids_by_device, problem = self._scan
        pids = sorted({pid for device in devices for pid in pids_by_device.get(device, ())})
        found = tuple(self._holder(pid) for pid in pids)
        return found or ((Holder("process", UNKNOWN_HOLDER, problem),) if problem else ())

    @cached_property
    def _scan(self) -> tuple[dict[str, set[int]], str]:
        """Processes by VFIO device, and why the list may be incomplete."""
        found: dict[str, set[int]] = {}
        try:
            entries = self._files.names(PROC)
        except OSError as failure:
            return {}, f"{PROC} cannot be read: {errno_name(failure)}"
        problem = hidden_processes(self._files)
        for entry in filter(str.isdigit, entries):
            try:
                for device in self._open_devices(f"{PROC}/{entry}/fd"):
                    found.setdefault(device, set()).add(int(entry))
            except OSError as failure:
                if failure.errno not in _GONE:
                    problem = problem or f"open files of process {entry} cannot be read: {errno_name(failure)}"
        return found, problem

    def _open_devices(self, folder: str) -> set[str]:
        """Return the VFIO devices that one process has open."""
        found = set()
        for number in self._files.names(folder):
            try:
                device = self._files.link(f"{folder}/{number}").removesuffix(" (deleted)")
            except OSError as failure:
                if failure.errno in _GONE:
                    continue  # closed meanwhile
                raise
            # In a chroot the path has a prefix: a separate device node is still the same device.
            _, folder_of_devices, own = device.rpartition(_VFIO)
            if folder_of_devices and own != _CONTAINER:
                found.add(_VFIO + own.removeprefix("noiommu-"))
        return found

    def _holder(self, pid: int) -> Holder:
        """Return the holder for a process: a VM by its name, any other process by its command."""
        try:
            words = self._files.read(f"{PROC}/{pid}/cmdline").split("\0")
            guest = guest_name(words)
            if guest:
                return Holder("vm", str(pid), guest)
            return Holder("process", str(pid), self._files.read(f"{PROC}/{pid}/comm").strip())
        except OSError:
            return Holder("process", str(pid))


def hidden_processes(files: KernelFiles) -> str:
    """Return why processes of the host may be hidden from this one; "" if none are."""
    try:
        namespace = files.link(f"{PROC}/self/ns/pid")
    except OSError:
        return ""  # a tree that is not the host's own has no such file
    if namespace != _HOST_PIDS:
        return "processes of the host are hidden from this container (run it with hostPID)"
    if not files.exists(f"{PROC}/1"):
        return f"{PROC} hides other users' processes (mounted with hidepid): run it as root with CAP_SYS_PTRACE"
    return ""


class NoHolderScan(Holders):
    """A substitute for reads that need no holders: the scan of a busy host takes longer than the rest of the read."""

    def of(self, devices: tuple[str, ...]) -> tuple[Holder, ...]:
        return ()


def guest_name(words: list[str]) -> str:
    """Return the name in QEMU's ``-name guest=web,debug-threads=on`` (or ``-name web``), or ""."""
    for flag, value in pairwise(words):
        if flag == "-name":
            keys = dict(part.partition("=")[::2] for part in value.split(",") if "=" in part)
            return keys.get("guest", "" if keys and "=" in value.partition(",")[0] else value.partition(",")[0])
    return ""
