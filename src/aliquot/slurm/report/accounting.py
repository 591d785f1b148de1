"""Jobs with GPUs from Slurm's accounting, as ``sacct`` lists them.

No field that is read here is free text of a user. A job that was requeued has a record for each of its runs.
"""

from __future__ import annotations

import re
from functools import lru_cache

import msgspec

from aliquot.errors import BlockedError, UsageError
from aliquot.slurm.client import error_messages
from aliquot.slurm.client.bounded_program import SlurmPrograms
from aliquot.slurm.client.errors import (
    NoAccountingError,
    NoSlurmError,
    RefusedError,
    SlurmdbdUnavailableError,
    SlurmUnavailableError,
)
from aliquot.slurm.client.gres_text import requested_gpus
from aliquot.slurm.report.window import Window

FIELDS = ("JobIDRaw", "State", "Submit", "Eligible", "Start", "End", "TimelimitRaw", "ReqTRES", "AllocTRES")
BOUND_S = 120.0
"""Time limit of sacct: slurmdbd reads a year of a large cluster in tens of seconds."""
_PURPOSE = "read Slurm's accounting"
_MEMORY = re.compile(r"^(\d{1,18})[^|\n]*\|(?:[^\n]*,)?gres/gpumem=(\d{1,18})(?=[,\n]|$)", re.MULTILINE | re.ASCII)
_NAMES = re.compile(r"[A-Za-z0-9_.@+\-]+(,[A-Za-z0-9_.@+\-]+)*")
_UNAVAILABLE = ("talking to the database", "persist", "slurmdbd", "connection refused", "timed out")


class AccountingJob(msgspec.Struct, frozen=True):
    """A run of a job that requested GPUs. Times are in seconds since the epoch, 0 if they are not known."""

    id: int
    state: str
    """``COMPLETED``, ``TIMEOUT``; without ``by UID``."""
    queued: int
    """When it could have started: at its submission, or later if it had to wait for another job or a time."""
    start: int
    """0 if it has never had devices."""
    end: int
    """0 if it has not ended."""
    limit_s: int | None
    """None if it has no time limit."""
    devices: tuple[tuple[str, int], ...]
    """Types and counts that it got, or requested if it has not started; "" for devices without a type."""


class JobFilter(msgspec.Struct, frozen=True):
    """Selection of jobs: names with commas between, as sacct takes them; "" for all."""

    user: str = ""
    partition: str = ""
    account: str = ""

    def words(self) -> list[str]:
        """Return sacct's options. Raises UsageError for what is not a list of names."""
        found = []
        for option, value in (("user", self.user), ("partition", self.partition), ("account", self.account)):
            if value and not _NAMES.fullmatch(value):
                raise UsageError(
                    f"invalid --{option} {value!r}: use names with commas between",
                    next_step="aliquot slurm report --help",
                )
            found += [f"--{option}={value}"] if value else []
        return found


def check_settings(settings: dict[str, str]) -> None:
    """Raise NoAccountingError unless slurmctld's settings say that GPUs are accounted for."""
    if not settings.get("AccountingStorageType", "").endswith("/slurmdbd"):
        raise NoAccountingError(
            "this cluster has no slurmdbd, so Slurm keeps no record of its jobs",
            details=("AccountingStorageType=accounting_storage/slurmdbd is needed, and a slurmdbd with MariaDB",),
            next_step="scontrol show config",
        )
    if "gres/gpu" not in settings.get("AccountingStorageTRES", "").split(","):
        raise NoAccountingError(
            "Slurm's accounting does not count GPUs: AccountingStorageTRES has no gres/gpu",
            next_step="aliquot slurm weights",
        )


def read_jobs(chosen: JobFilter, window: Window) -> tuple[AccountingJob, ...]:
    """Return the jobs with GPUs that waited or ran in a window. Raises SlurmError, BlockedError or UsageError."""
    return parse_jobs(_sacct(chosen, window, "--allocations", f"--format={','.join(FIELDS)}"))


def read_memory(chosen: JobFilter, window: Window) -> dict[int, int]:
    """Return the largest GPU memory in MiB that a step of each job used, as Slurm measured it (``gres/gpumem``).

    Slurm adds up the tasks of a step. Jobs without a value are omitted, for example those that still run. Raises as
    ``read_jobs`` does.
    """
    return parse_memory(_sacct(chosen, window, "--noconvert", "--format=JobIDRaw,TRESUsageInTot"))


def _sacct(chosen: JobFilter, window: Window, *more: str) -> str:
    words = (
        *("sacct", "--duplicates", "--allusers", "--parsable2", "--noheader"),
        *(f"--starttime=now-{window.length_s}", *more, *chosen.words()),
    )
    try:
        done = SlurmPrograms(bound_s=BOUND_S).run(_PURPOSE, *words)
    except SlurmUnavailableError as late:  # slurmctld has just answered
        raise _unavailable(late.details) from late
    except NoSlurmError as error:
        if isinstance(error.__cause__, OSError) and error.__cause__.errno is None:  # not an error of the system
            raise RefusedError(
                f"cannot {_PURPOSE}: sacct has too many jobs: {error.__cause__.strerror}",
                next_step="aliquot slurm report --since 1d",
            ) from error
        raise
    if done.code:
        raise _failure(done.err.strip() or done.out.strip(), chosen)
    return done.out


def parse_jobs(text: str) -> tuple[AccountingJob, ...]:
    """Parse the jobs with GPUs of a listing of ``FIELDS``. Raises RefusedError for another text."""
    return tuple(job for line in text.splitlines() if (job := _job(line)) is not None)


def parse_memory(text: str) -> dict[int, int]:
    """Parse ``JobIDRaw,TRESUsageInTot`` of steps (``7.batch|cpu=5,gres/gpumem=5368709120``) as MiB by job."""
    found: dict[int, int] = {}
    for step, usage in _MEMORY.findall(text):
        job, mib = int(step), -(-int(usage) >> 20)
        if mib:
            found[job] = max(found.get(job, 0), mib)
    return found


def counts_memory(settings: dict[str, str]) -> bool:
    """Report whether Slurm may measure the GPU memory of jobs. It does so on nodes where it detects GPUs by NVML."""
    gathers = not settings.get("JobAcctGatherType", "").endswith("/none")
    return gathers and "gres/gpumem" in settings.get("AccountingStorageTRES", "").split(",")


def _job(line: str) -> AccountingJob | None:
    words = line.split("|")
    if len(words) != len(FIELDS) or not words[0].isdecimal():
        raise RefusedError("cannot parse the output of sacct", details=(line[:200],), next_step="sacct --version")
    number, state, submit, eligible, start, end, limit, requested, allocated = words
    devices = _devices(allocated) or _devices(requested)
    if not devices:
        return None
    return AccountingJob(
        id=int(number),
        state=state.partition(" ")[0],
        queued=_time(eligible) or _time(submit),
        start=_time(start) if allocated else 0,
        end=_time(end),
        limit_s=int(limit) * 60 if limit.isdecimal() else None,
        devices=devices,
    )


@lru_cache(maxsize=4096)
def _devices(tres: str) -> tuple[tuple[str, int], ...]:
    """Return counts by type. ``gres/gpu`` is the total: what no type accounts for has no type."""
    counts: dict[str, int] = {}
    for each in requested_gpus(tres):
        counts[each.type] = counts.get(each.type, 0) + each.count
    counts[""] = counts.get("", 0) - sum(count for kind, count in counts.items() if kind)
    return tuple((kind, count) for kind, count in sorted(counts.items()) if count > 0)


def _time(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def _failure(output: str, chosen: JobFilter) -> BlockedError:
    """Return the error for what sacct wrote."""
    low = output.lower()
    if chosen.user and "invalid user id" in low:
        name = output.rpartition(":")[2].strip()
        return BlockedError(
            f"no user {name}: sacct takes names and ids of this host's users",
            code="NO_SUCH_USER",
            next_step=f"id {name}",
        )
    if any(each in low for each in _UNAVAILABLE):
        return _unavailable(tuple(line.strip() for line in output.splitlines() if line.strip())[-3:])
    return error_messages.slurm_error(output, _PURPOSE)


def _unavailable(details: tuple[str, ...]) -> SlurmdbdUnavailableError:
    return SlurmdbdUnavailableError(
        f"cannot {_PURPOSE}: slurmdbd does not answer", details=details, next_step="sacctmgr show cluster"
    )
