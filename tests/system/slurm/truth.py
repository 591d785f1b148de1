"""What must hold at every moment of a scenario: counts that Slurm shows are true, and no job is lost or touched."""

from __future__ import annotations

import os
import threading
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from aliquot.sim import lifecycle as control
from aliquot.sim.client import SimClient

from .applying import Host, ended, running
from .bed import Bed, until

_CLOSED = ("DRAIN", "DOWN", "INVAL", "UNKNOWN", "FUTURE")
ALIVE = ("PENDING", "RUNNING", "COMPLETING", "COMPLETED")


class Jobs:
    """The jobs that a test has given to Slurm: none of them is ever lost."""

    def __init__(self, bed: Bed) -> None:
        self.bed = bed
        self.numbers: list[str] = []

    def submit(self, script: str, *words: str) -> str:
        done = self.bed.submit(script, *words)
        assert done.code == 0, done
        self.numbers.append(done.out)
        return done.out

    def refused(self, *words: str) -> str:
        """What Slurm says of a job that it does not take."""
        done = self.bed.submit("true", *words)
        assert done.code != 0, done
        return done.err

    def running(self, script: str, *words: str) -> str:
        job = self.submit(script, *words)
        running(self.bed, job)
        return job

    def one_runs(self, *words: str) -> str:
        """A new job runs to its end: the node is usable."""
        job = self.submit("true", *words)
        ended(self.bed, job)
        return job

    def none_lost(self) -> None:
        """Each has run, runs, or waits, under its own number; none was begun a second time."""
        states = {job: (self.bed.job(job, "JobState"), self.bed.job(job, "Restarts")) for job in self.numbers}
        assert all(state in ALIVE and restarts == "0" for state, restarts in states.values()), states


def refusal(text: str) -> dict[str, Any]:
    """The error document in what a command said on stderr, behind its progress."""
    return msgspec.json.decode(text[text.index("{\n") :], type=dict[str, Any])


def instances(host: Host) -> Counter[str]:
    """The instances that the simulated GPUs have now, by profile."""
    found: Counter[str] = Counter()
    node = SimClient(str(host.state), host.env["ALIQUOT_SIM"])
    try:
        for gpu in node.show()["gpus"]:
            found.update(i["profile"] for i in gpu["instances"])
    finally:
        node.close()
    return found


def writes(host: Host) -> str:
    """A shell command that counts the driver calls which have changed something on a host's GPUs."""
    return f"""grep -c '"write":true' {control.folder(str(host.state), host.env["ALIQUOT_SIM"])}/calls.jsonl"""


def counted(gres: str) -> Counter[str]:
    """``gpu:a100_3g.20gb:2(S:0)`` as instances by profile."""
    found: Counter[str] = Counter()
    for entry in gres.split(","):
        if entry.startswith("gpu:a100_"):
            kind, _, count = entry.partition("(")[0].removeprefix("gpu:a100_").rpartition(":")
            found[kind] += int(count)
    return found


class Process(msgspec.Struct, frozen=True):
    """A job's own process, as the kernel knows it, and what Slurm says of the job."""

    pid: int
    began: str
    start: str
    restarts: str

    @classmethod
    def of(cls, bed: Bed, job: str) -> Process:
        """``job`` is one that has written its process id first."""
        place = Path(bed.folder, "out", job)
        until(lambda: bool(place.read_text().strip()) if place.exists() else False, f"job {job} says nothing")
        pid = int(place.read_text().split()[0])
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return cls(pid, fields[19], bed.job(job, "StartTime"), bed.job(job, "Restarts"))


class Look(msgspec.Struct, frozen=True):
    """One moment: what Slurm's programs showed of a node, what its GPUs had, and what jobs had of it."""

    state: str
    scontrol: Counter[str]
    sinfo: Counter[str]
    given: Counter[str]
    true: Counter[str]

    @property
    def honest(self) -> bool:
        return self.scontrol == self.sinfo == self.true and not self.given - self.true


PAUSE_S = 0.1
"""Between two looks. A look runs four programs of Slurm, and one for each job: what a user could see lasts longer."""


class Watch:
    """Looks at a host until its end. A look at which nothing moved, and the node took jobs, is one of ``looks``."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.looks: list[Look] = []
        self.invalid: list[str] = []
        self._stop = threading.Event()
        self._threads = ThreadPoolExecutor(1)
        self._end: Future[None] | None = None

    @property
    def lies(self) -> list[Look]:
        return [look for look in self.looks if not look.honest]

    @property
    def shown(self) -> list[Counter[str]]:
        """The layouts that jobs could have, in order."""
        found: list[Counter[str]] = []
        for look in self.looks:
            if found[-1:] != [look.scontrol]:
                found.append(look.scontrol)
        return found

    def __enter__(self) -> Watch:
        self._end = self._threads.submit(self._watch)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        assert self._end
        self._end.result(60)
        self._threads.shutdown()

    def _watch(self) -> None:
        while not self._stop.wait(PAUSE_S):
            self._look()

    def _look(self) -> None:
        bed, name = self.host.bed, self.host.name
        before = instances(self.host)
        first = _node(bed, name)
        shown = bed.run("sinfo", "-h", "-n", name, "-o", "%G").out.split()
        given = bed.run("squeue", "-h", "-t", "R,CG", "-w", name, "-o", "%i").out.split()
        had: Counter[str] = Counter()
        for job in given:
            had += counted(bed.job(job, "GRES"))
        if _node(bed, name) != first or instances(self.host) != before:
            return
        state, gres = first
        if "INVAL" in state:
            self.invalid.append(state)
        if state and not any(word in state for word in _CLOSED):
            said = sum((counted(each) for each in shown), Counter[str]())
            self.looks.append(Look(state, counted(gres), said, had, before))


def _node(bed: Bed, name: str) -> tuple[str, str]:
    """A node's state and GRES in one answer; empty where Slurm has no such node."""
    done = bed.run("scontrol", "-o", "show", "node", name)
    fields = dict(word.partition("=")[::2] for word in done.out.split() if "=" in word) if done.code == 0 else {}
    return fields.get("State", ""), fields.get("Gres", "")


def same_process(process: Process) -> bool:
    """Whether that very process still runs."""
    try:
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return fields[19] == process.began and os.path.exists(f"/proc/{process.pid}")
