"""Enabling and disabling virtual functions, and waiting for them.

NVIDIA's driver refuses a plain write to ``sriov_numvfs`` and ships ``sriov-manage``, which takes the GPU's unbind lock,
unbinds, writes and binds again. Other drivers need only the plain write.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress

from aliquot.core.engine.action_text import progress_line
from aliquot.core.engine.ports import Clock
from aliquot.errors import HardwareError, InUseError
from aliquot.foundation.backoff import Backoff
from aliquot.foundation.callbacks import Report
from aliquot.hardware.kernel import pci as bus
from aliquot.hardware.kernel.errors import CLIENTS, kernel_file_error
from aliquot.hardware.kernel.sriov import count, links
from aliquot.hardware.kernel.sriov_manage import Tools
from aliquot.hardware.kernel.sysfs import read_optional
from aliquot.hardware.kernel_files import KernelFiles

DEADLINE_S = 120.0
"""Seconds until virtual functions must have appeared: 8 GPUs with 160 of them need 30 s and more
(gpu-operator#2002).
"""

LOCK_S = 10.0
"""Seconds for which the unbind lock is requested: a client that has just ended still holds it for a moment."""

_REPORT_S = 10.0
_BUSY = "unbindlock"


def set_function_count(files: KernelFiles, tools: Tools, clock: Clock, pci: str, wanted: int) -> None:
    """Set the number of virtual functions to ``wanted``, which must differ from the current number. Does not wait for
    them. Raises InUseError while a client has the GPU open, and HardwareError.
    """
    current = count(files, pci)
    if tools.sriov_manage:
        before = bus.driver(files, pci)
        try:
            if current:
                _manage(tools, clock, pci, False)
            if wanted:
                _manage(tools, clock, pci, True)
        finally:
            _restore_driver(files, pci, before)
        return
    path = bus.attribute(pci, "sriov_numvfs")
    for value in ([0] if current else []) + ([wanted] if wanted else []):
        try:
            files.write(path, str(value))
        except OSError as failure:
            attempt = f"{'enabling' if value else 'disabling'} the virtual functions of {pci}"
            raise kernel_file_error(failure, attempt, path, _MEANING, _NEXT) from failure


def _restore_driver(files: KernelFiles, pci: str, driver: str) -> None:
    """Bind the GPU to its driver again: a program that stopped half-way leaves it without one, and no undo step
    restores it.
    """
    with suppress(OSError):
        if driver and not bus.driver(files, pci):
            bus.rebind(files, pci, driver)


_LOCK_POLL = Backoff(first=0.25, longest=2.0)
_READY_POLL = Backoff(first=0.02, longest=0.5, factor=1.5)
_MEANING = {
    errno.EBUSY: "other virtual functions are enabled, or one of them is in use",
    errno.ERANGE: "the device has fewer virtual functions than that",
    errno.EPERM: "NVIDIA's driver accepts this only from its own program sriov-manage, which was not found",
    errno.ENOSYS: "the driver of this function does not support SR-IOV",
    errno.EOPNOTSUPP: "the driver of this function does not support SR-IOV",
    errno.ENOENT: "this function has no SR-IOV, or no driver",
    errno.EINVAL: "its driver refuses that number of virtual functions",
}
_NEXT = "install NVIDIA's vGPU host driver, or set ALIQUOT_DRIVER_ROOT to where it is, then run: aliquot show"


def _manage(tools: Tools, clock: Clock, pci: str, on: bool) -> None:
    attempt = f"{'enabling' if on else 'disabling'} the virtual functions of {pci}"
    deadline, tries = clock.now() + LOCK_S, 0
    while True:
        status, output = tools.manage(pci, on)
        # The exit status does not always report a held lock; the output does.
        busy = _BUSY in output.lower().replace(" ", "")
        if not busy and status == 0:
            return
        lines = tuple(line.strip() for line in output.splitlines() if line.strip())[:8]
        details = (f"{tools.sriov_manage} ended with status {status}", *lines)
        if not busy:
            raise HardwareError(f"{attempt} failed", details=details, next_step=f"aliquot show {pci}")
        if clock.now() + _LOCK_POLL.pause(tries + 1) > deadline:
            raise InUseError(
                f"{attempt} failed: a client still has the GPU open, so its driver cannot be unbound",
                details=(*details, CLIENTS),
                next_step=f"see who holds it with aliquot show {pci}, end that work, then run the command again",
            )
        tries += 1
        clock.sleep(_LOCK_POLL.pause(tries))


def wait_until_ready(
    files: KernelFiles,
    clock: Clock,
    pci: str,
    wanted: int,
    lists_types: Callable[[str], bool],
    report: Report,
) -> None:
    """Wait until there are ``wanted`` virtual functions, each bound to a driver and ready (``lists_types``). Raises
    HardwareError after DEADLINE_S, with the functions that are not ready.
    """
    deadline, next_report, tries = clock.now() + DEADLINE_S, clock.now() + _REPORT_S, 0
    ready: set[str] = set()
    probe_manually = read_optional(files, bus.attribute(pci, "sriov_drivers_autoprobe")) == "0"
    while True:
        found = links(files, pci)
        for link in found:
            if link.pci not in ready:
                if probe_manually and not bus.driver(files, link.pci):
                    _probe(files, link.pci)
                if bus.driver(files, link.pci) and lists_types(link.pci):
                    ready.add(link.pci)
        if len(found) == wanted and len(ready) == wanted:
            return
        if clock.now() >= deadline:
            break
        if clock.now() >= next_report:
            report(progress_line(pci, f"{len(ready)} of {wanted} virtual functions are ready"))
            next_report = clock.now() + _REPORT_S
        tries += 1
        clock.sleep(_READY_POLL.pause(tries))
    not_ready = [link.pci for link in found if link.pci not in ready]
    raise HardwareError(
        f"{len(ready)} of {wanted} virtual functions of {pci} were ready after {DEADLINE_S:.0f} s",
        details=(
            f"{len(found)} exist",
            *([f"without a driver or without vGPU types: {', '.join(not_ready)}"] if not_ready else []),
        ),
        next_step="look for NVRM messages in the kernel log (dmesg | grep -i nvrm), then run: aliquot show",
    )


def _probe(files: KernelFiles, pci: str) -> None:
    try:
        files.write(bus.PROBE, pci)
    except OSError:
        return  # it is checked again until the deadline, whose error names it
