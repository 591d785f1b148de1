"""Job ids for dcgm-exporter (``--hpc-job-mapping-dir``).

There is a file for each GPU (``0``) or GPU instance (``0.7``), with one line for each of its jobs. The exporter adds a
label ``hpc_job`` to each metric of it (dcgm-exporter, hpc.go).

The exporter drops a whole scrape if a file disappears between listing and reading. So files are emptied instead of
removed, and replaced by renaming. It only reads names of digits, so names that begin with a dot are free for our use.
GPUs have NVML's index, GPU instances NVML's id.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping

from aliquot.errors import StorageError
from aliquot.foundation import atomic_file
from aliquot.slurm.files.job_devices import GresDevice

JOBS_FOLDER = "/run/aliquot/dcgm-jobs"
GRACE_S = 60.0
_OURS = re.compile(r"[0-9]+(\.[0-9]+)?")
_LOCK = ".lock"


def name(device: GresDevice) -> str:
    """Return the file name of a device. Compute instances of one GPU instance share it."""
    return f"{device.gpu}" if device.instance is None else f"{device.gpu}.{device.instance}"


def begin(job: str, devices: Iterable[GresDevice], folder: str = JOBS_FOLDER) -> tuple[str, ...]:
    """Record that a job has devices, and return their files. Raises StorageError."""
    names = tuple(dict.fromkeys(name(d) for d in devices))
    with _locked(folder):
        for each in names:
            jobs = _jobs(folder, each)
            if job not in jobs:
                _write(folder, each, (*jobs, job))
    return names


def end(job: str, folder: str = JOBS_FOLDER) -> tuple[str, ...]:
    """Record that a job has ended, and return the files that changed. Raises StorageError."""
    changed = []
    with _locked(folder):
        for each in _names(folder):
            previous = _jobs(folder, each)
            if job in previous:
                _write(folder, each, tuple(other for other in previous if other != job))
                changed.append(each)
    return tuple(changed)


def refresh(
    running: Mapping[str, Iterable[GresDevice]], folder: str = JOBS_FOLDER, *, now: float | None = None
) -> tuple[str, ...]:
    """Update the files to the ``running`` jobs and their devices, and return the files that changed.

    The processes complete what Prolog and Epilog miss: Slurm passes a Prolog only one type of a job that has several,
    and runs no Epilog if slurmd died. Entries that a Prolog wrote in the last ``GRACE_S`` seconds stay, because their
    jobs have no process yet. ``now`` is in seconds since the epoch. Raises StorageError.
    """
    wanted: dict[str, list[str]] = {}
    for job, devices in running.items():
        for device in devices:
            wanted.setdefault(name(device), []).append(job)
    moment = time.time() if now is None else now
    changed = []
    with _locked(folder):
        for each in sorted({*_names(folder), *wanted}):
            previous = _jobs(folder, each)
            fresh = moment - _written(folder, each) < GRACE_S
            remaining = [job for job in previous if fresh or job in running]
            new = tuple(dict.fromkeys([*remaining, *wanted.get(each, ())]))
            if new != previous:
                _write(folder, each, new)
                changed.append(each)
    return tuple(changed)


def jobs(folder: str = JOBS_FOLDER) -> dict[str, tuple[str, ...]]:
    """Return the jobs in each file that is not empty."""
    found = {each: _jobs(folder, each) for each in _names(folder)}
    return {each: listed for each, listed in found.items() if listed}


def _written(folder: str, each: str) -> float:
    try:
        return os.stat(os.path.join(folder, each)).st_mtime
    except FileNotFoundError:
        return 0.0


def _names(folder: str) -> list[str]:
    try:
        return sorted(each for each in os.listdir(folder) if _OURS.fullmatch(each))
    except FileNotFoundError:
        return []


def _jobs(folder: str, each: str) -> tuple[str, ...]:
    try:
        with open(os.path.join(folder, each), errors="replace") as file:
            return tuple(line.strip() for line in file if line.strip())
    except FileNotFoundError:
        return ()


def _write(folder: str, each: str, jobs: tuple[str, ...]) -> None:
    body = "".join(f"{job}\n" for job in jobs).encode()
    atomic_file.replace(os.path.join(folder, each), body, durable=False)


@contextlib.contextmanager
def _locked(folder: str) -> Iterator[None]:
    """Hold the lock, because Prologs and Epilogs of several jobs run in parallel. A killed process leaves no lock."""
    try:
        os.makedirs(folder, mode=0o755, exist_ok=True)
        # Only we may open the file: a process that can read it can lock it, and every Prolog would wait.
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        with open(os.open(os.path.join(folder, _LOCK), flags, 0o600), "r+") as file:
            os.fchmod(file.fileno(), 0o600)
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
    except OSError as error:
        step = "run it as root" if isinstance(error, PermissionError) else f"ls -ld {folder}"
        raise StorageError(f"cannot write below {folder}: {error.strerror or error}", next_step=step) from error
