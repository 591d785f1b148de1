"""Invariants at every moment of a scenario: Slurm shows correct counts, and no job is lost or touched."""

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
    """The jobs that a test has submitted. None of them may be lost."""

    def __init__(self, bed: Bed) -> None:
        self.bed = bed
        self.numbers: list[str] = []

    def submit(self, script: str, *words: str) -> str:
        done = self.bed.submit(script, *words)
        assert done.code == 0, done
        self.numbers.append(done.out)
        return done.out

    def refused(self, *words: str) -> str:
        """Submit a job that Slurm must refuse, and return its error."""
        done = self.bed.submit("true", *words)
        assert done.code != 0, done
        return done.err

    def running(self, script: str, *words: str) -> str:
        job = self.submit(script, *words)
        running(self.bed, job)
        return job

    def one_runs(self, *words: str) -> str:
        """Run a new job to its end, which proves that the node is usable."""
        job = self.submit("true", *words)
        ended(self.bed, job)
        return job

    def none_lost(self) -> None:
        """Assert that each job has run, runs or waits under its own number, and that none was started a second time."""
        states = {job: (self.bed.job(job, "JobState"), self.bed.job(job, "Restarts")) for job in self.numbers}
        assert all(state in ALIVE and restarts == "0" for state, restarts in states.values()), states


def refusal(text: str) -> dict[str, Any]:
    """Return the error document on stderr, which follows a command's progress."""
    return msgspec.json.decode(text[text.index("{\n") :], type=dict[str, Any])


def instances(host: Host) -> Counter[str]:
    """Count the current instances on the simulated GPUs by profile."""
    found: Counter[str] = Counter()
    node = SimClient(str(host.state), host.env["ALIQUOT_SIM"])
    try:
        for gpu in node.show()["gpus"]:
            found.update(i["profile"] for i in gpu["instances"])
    finally:
        node.close()
    return found


def writes(host: Host) -> str:
    """Return a shell command that counts the driver calls that have changed a host's GPUs."""
    return f"""grep -c '"write":true' {control.folder(str(host.state), host.env["ALIQUOT_SIM"])}/calls.jsonl"""


def counted(gres: str) -> Counter[str]:
    """Convert GRES such as ``gpu:a100_3g.20gb:2(S:0)`` to instances by profile."""
    found: Counter[str] = Counter()
    for entry in gres.split(","):
        if entry.startswith("gpu:a100_"):
            kind, _, count = entry.partition("(")[0].removeprefix("gpu:a100_").rpartition(":")
            found[kind] += int(count)
    return found


class Process(msgspec.Struct, frozen=True):
    """A job's own process as the kernel shows it, with Slurm's data about the job."""

    pid: int
    began: str
    start: str
    restarts: str

    @classmethod
    def of(cls, bed: Bed, job: str) -> Process:
        """Return the process of a job that first writes its process id."""
        place = Path(bed.folder, "out", job)
        until(lambda: bool(place.read_text().strip()) if place.exists() else False, f"job {job} says nothing")
        pid = int(place.read_text().split()[0])
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return cls(pid, fields[19], bed.job(job, "StartTime"), bed.job(job, "Restarts"))


class Look(msgspec.Struct, frozen=True):
    """A moment: what Slurm's programs showed of a node, the instances on its GPUs, and the instances that jobs had."""

    state: str
    scontrol: Counter[str]
    sinfo: Counter[str]
    given: Counter[str]
    true: Counter[str]

    @property
    def honest(self) -> bool:
        return self.scontrol == self.sinfo == self.true and not self.given - self.true


PAUSE_S = 0.1
"""Pause between two polls. A poll runs four programs of Slurm and one for each job; a user's observation takes longer.
"""


class Watch:
    """Polls a host until the end of the block. Only polls without a change, of a node that takes jobs, are recorded."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.observations: list[Look] = []
        self.invalid: list[str] = []
        self._stop = threading.Event()
        self._threads = ThreadPoolExecutor(1)
        self._end: Future[None] | None = None

    @property
    def lies(self) -> list[Look]:
        return [observation for observation in self.observations if not observation.honest]

    @property
    def shown(self) -> list[Counter[str]]:
        """The layouts that jobs could have, in order."""
        found: list[Counter[str]] = []
        for number in self.observations:
            if found[-1:] != [number.scontrol]:
                found.append(number.scontrol)
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
            self._observe()

    def _observe(self) -> None:
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
            answer = sum((counted(each) for each in shown), Counter[str]())
            self.observations.append(Look(state, counted(gres), answer, had, before))


def _node(bed: Bed, name: str) -> tuple[str, str]:
    """Return a node's state and GRES from a single call; empty if Slurm has no such node."""
    done = bed.run("scontrol", "-o", "show", "node", name)
    fields = dict(word.partition("=")[::2] for word in done.out.split() if "=" in word) if done.code == 0 else {}
    return fields.get("State", ""), fields.get("Gres", "")


def same_process(process: Process) -> bool:
    """Report whether exactly this process still runs."""
    try:
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return fields[19] == process.began and os.path.exists(f"/proc/{process.pid}")
