"""The job of a process on this host, from the ``slurmstepd`` above it.

The environment alone is not enough, because any process can write it: a process without a job could hold every GPU of
the host in another user's name. The daemon of a step belongs to root, no other user can start one, and its title names
the step: ``slurmstepd: [7.batch]``, ``[7.0]``, ``[7+1.0]`` for a part of a heterogeneous job. A process that outlives
its step belongs to no job (Slurm ends them all, unless it is configured to track them only by session).
"""

from __future__ import annotations

import os
import re

import msgspec

_TITLE = re.compile(rb"slurmstepd: \[(\d{1,10})(?:\+(\d{1,4}))?\.", re.ASCII)
_NAME = "slurmstepd"
_GONE = " (deleted)"
"""Suffix that the kernel adds to the name of a program whose file was replaced, for example by an upgrade of Slurm."""
_DEEPEST = 256


class StepProcess(msgspec.Struct, frozen=True):
    """The parent and the owner of a process."""

    parent: int
    owner: int
    """The real user id: for a setuid program, that of the user who started it."""


class JobSteps:
    """The jobs of one host's processes; each process is read once."""

    def __init__(self, proc: str) -> None:
        self._proc = proc
        self._known: dict[int, str | None] = {}

    def job_of(self, pid: int) -> str | None:
        """Return the job id of a process as digits, or None if it belongs to no job."""
        above: list[int] = []
        found: str | None = None
        while pid > 1 and len(above) < _DEEPEST:
            if pid in self._known:
                found = self._known[pid]
                break
            above.append(pid)
            process = self._process(pid)
            if process is None:
                break
            found = self._step(pid, process)
            if found is not None:
                break
            pid = process.parent
        self._known.update(dict.fromkeys(above, found))
        return found

    def _step(self, pid: int, process: StepProcess) -> str | None:
        """Return the job of a step's daemon, or None for any other process.

        Daemons of our own user are trusted too, for slurmd without root.
        """
        if process.owner not in (0, os.geteuid()):
            return None
        try:
            program = os.readlink(os.path.join(self._proc, str(pid), "exe")).removesuffix(_GONE)
            if _NAME not in os.path.basename(program):
                return None
            with open(os.path.join(self._proc, str(pid), "cmdline"), "rb") as file:
                title = _TITLE.search(file.read(4096))
        except OSError:
            return None
        return str(int(title[1]) + int(title[2] or 0)) if title else None

    def _process(self, pid: int) -> StepProcess | None:
        try:
            with open(os.path.join(self._proc, str(pid), "status"), "rb") as file:
                lines = file.read(8192).splitlines()
            fields = dict(line.split(b":", 1) for line in lines if b":" in line)
            return StepProcess(int(fields[b"PPid"]), int(fields[b"Uid"].split()[0]))
        except (OSError, KeyError, ValueError, IndexError):
            return None
