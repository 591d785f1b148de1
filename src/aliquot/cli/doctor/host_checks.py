"""The checks of a host: driver and GPUs, permissions, the lock and the journal."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from aliquot.cli.doctor.finding import DoctorFinding, failed
from aliquot.errors import AliquotError
from aliquot.foundation.decimals import counted
from aliquot.foundation.paths import directories

if TYPE_CHECKING:
    from aliquot.core.model.inventory import Inventory

DRIVER, ACCESS, STATE = "driver and GPUs", "permissions", "lock and journal"
CAPABILITIES = "/dev/nvidia-caps/nvidia-cap"
_LONG_S = 600.0
"""A change that takes longer than this may hang."""


def driver_findings(found: Inventory | AliquotError, *, required: bool) -> Iterator[DoctorFinding]:
    """Check the driver and the GPUs. A missing driver is a problem only if it is ``required``."""
    if isinstance(found, AliquotError):
        yield failed(DRIVER, "DRIVER", found, status="problem" if required else "note")
        return
    capable = sum(gpu.mig.capable for gpu in found.gpus)
    gpus = f"{counted(len(found.gpus), 'GPU')}, {capable} MIG-capable"
    if found.gpus:
        answer = f"driver {found.driver or 'unknown'} answers (NVML {found.nvml or 'unknown'}): {gpus}"
        yield DoctorFinding(DRIVER, "DRIVER", "ok", answer)
    else:
        yield DoctorFinding(DRIVER, "DRIVER", "problem", "the driver answers, but lists no GPU", "lspci -d 10de:")
    yield from _verdicts(found)


def _verdicts(inventory: Inventory) -> Iterator[DoctorFinding]:
    from aliquot.core.model import driver_checks

    pending = {driver_checks.pending_mode(gpu): gpu for gpu in inventory.gpus}
    for sentence in driver_checks.verdicts(inventory):
        gpu = pending.get(sentence)
        if gpu is None:
            yield DoctorFinding(DRIVER, "GPU_STATE", "problem", sentence, "aliquot show")
        else:
            step = f"nvidia-smi -r -i {gpu.pci}" if gpu.resettable else "reboot this VM"
            yield DoctorFinding(DRIVER, "MIG_PENDING", "problem", sentence, step)
    for sentence in (*inventory.notes, *driver_checks.notes(inventory)):
        yield DoctorFinding(DRIVER, "GPU_STATE", "note", sentence)


def access_findings(node: str | None, found: Inventory | AliquotError) -> Iterator[DoctorFinding]:
    """Check whether this user may change GPUs and write the state directories."""
    sudo = "sudo aliquot doctor" if os.geteuid() else None
    denied = [folder for folder in dict.fromkeys(directories(node)) if not _writable(folder)]
    for folder in denied:
        yield DoctorFinding(
            ACCESS, "STATE_DIRECTORY", "problem", f"{folder} cannot be written", sudo or f"ls -ld {shlex.quote(folder)}"
        )
    if not denied:
        yield DoctorFinding(
            ACCESS, "STATE_DIRECTORY", "ok", "the directories of the lock and the journal can be written"
        )
    if node is not None or isinstance(found, AliquotError) or not any(gpu.mig.capable for gpu in found.gpus):
        return
    capability = f"{CAPABILITIES}1"
    if not os.path.exists(capability):
        message = f"{capability} does not exist: the driver creates it when root first uses it"
        yield DoctorFinding(
            ACCESS, "MIG_CAPABILITY", "note", message, "nvidia-modprobe -f /proc/driver/nvidia/capabilities/mig/config"
        )
    elif not os.access(capability, os.R_OK):
        message = f"{capability} cannot be read by this user: only its owner can change MIG instances"
        yield DoctorFinding(ACCESS, "MIG_CAPABILITY", "problem", message, sudo)
    else:
        yield DoctorFinding(ACCESS, "MIG_CAPABILITY", "ok", "this user may change MIG instances")


def _writable(folder: str) -> bool:
    """Report whether a folder can be written, or created if it is missing."""
    while not os.path.exists(folder) and folder != os.path.dirname(folder):
        folder = os.path.dirname(folder)
    return os.access(folder, os.W_OK | os.X_OK)


def state_findings(node: str | None) -> Iterator[DoctorFinding]:
    """Check the lock, the last change in the journal, and state files that cannot be understood."""
    from aliquot.cli.framework.target_node import set_aside
    from aliquot.foundation.lock import holder, since

    lock = os.path.join(directories(node)[0], "lock")
    busy, taken = holder(lock), since(lock)
    if not busy:
        yield DoctorFinding(STATE, "LOCK", "ok", "no process is changing GPUs")
    else:
        seconds = max(0.0, time.time() - taken)
        message = f"{busy} has been changing GPUs for {seconds:.0f} s"
        yield DoctorFinding(STATE, "LOCK", "problem" if seconds > _LONG_S else "note", message, "aliquot history")
    yield _last_change(node, busy=bool(busy), since=taken)
    for sentence in set_aside(node):
        yield DoctorFinding(STATE, "UNREADABLE_STATE", "note", sentence)


def _last_change(node: str | None, *, busy: bool, since: float) -> DoctorFinding:
    from aliquot.core.engine.history import INTERRUPTED, past_runs
    from aliquot.hardware.state.journal_reader import JOURNAL, read

    try:
        runs = past_runs(read(os.path.join(directories(node)[1], JOURNAL)), running=busy, since=since)
    except AliquotError as error:
        return failed(STATE, "JOURNAL", error)
    if runs and runs[0].outcome == INTERRUPTED:
        step = shlex.join(runs[0].command) if runs[0].command else "aliquot history"
        message = f"the last change was cut off ({runs[0].failure}): the next apply continues or undoes it"
        return DoctorFinding(STATE, "JOURNAL", "problem", message, step)
    if runs and runs[0].outcome == "partial":
        message = f"the last change failed, and not all of it could be undone: {runs[0].failure}"
        return DoctorFinding(STATE, "JOURNAL", "problem", message, "aliquot show")
    return DoctorFinding(STATE, "JOURNAL", "ok", "no change is unfinished")
