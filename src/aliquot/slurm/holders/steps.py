"""Which job a process of this host belongs to, as the ``slurmstepd`` above it says.

What a process has in its environment anybody can write: a process without a job could hold every GPU of the host, in
another user's name. A step's daemon is root's, nobody else can start one, and its title names the step:
``slurmstepd: [7.batch]``, ``[7.0]``, ``[7+1.0]`` for a part of a heterogeneous job. What a process leaves behind when
it ends its step (Slurm ends them all, unless it was told to track them by session alone) belongs to no job.
"""

from __future__ import annotations

import os
import re

import msgspec

_TITLE = re.compile(rb"slurmstepd: \[(\d{1,10})(?:\+(\d{1,4}))?\.", re.ASCII)
_NAME = "slurmstepd"
_GONE = " (deleted)"
"""How the kernel ends the name of a program whose file was replaced since: by an upgrade of Slurm."""
_DEEPEST = 256


class StepProcess(msgspec.Struct, frozen=True):
    """``owner`` is the real user id: a program that lends its own rights has that of whoever started it."""

    parent: int
    owner: int


class JobSteps:
    """A look at one host's processes; what was looked up once is not read again."""

    def __init__(self, proc: str) -> None:
        self._proc = proc
        self._known: dict[int, str | None] = {}

    def job_of(self, pid: int) -> str | None:
        """The job whose step a process is part of, as digits; None for no job's."""
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
        """The job of a step's daemon; None for any other process. One's own are trusted, too: slurmd without root."""
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
