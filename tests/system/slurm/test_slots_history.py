"""Random histories of jobs, changes and kills on a slot board: no job is lost, and none opens another's device.

``ALIQUOT_SEED`` gives a history again; a failure prints its own.
"""

from __future__ import annotations

import random
import signal

import pytest

from support import selection

from .applying import running
from .bed import Bed, until
from .slotted import SlotHost, adopted, looks, probe
from .test_apply_killed import killed
from .test_slots_killed import SAVED_S, kill
from .truth import Jobs

KINDS = ("1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb")
LAYOUTS = ("7g.40gb", "3g.20gb*2", "4g.20gb@0,3g.20gb@4", "2g.10gb*3,1g.5gb", "1g.5gb*7", "3g.20gb@4,1g.5gb*2")
STEPS = ("gate", "gpus", "files", "tell", "verify", "release")
ABOUT = ("src/aliquot/slurm/node", "src/aliquot/slurm/files/slot_", "tests/system/slurm/test_slots_history.py")
GPUS = 2
LATE_S = 100.0
"""Seconds within which a step begins. srun tries again after a minute if a daemon was killed just then."""


class History:
    """A slot board, its running jobs, and what each could open when it began."""

    def __init__(self, bed: Bed, draw: random.Random) -> None:
        self.draw = draw
        self.host: SlotHost = adopted(bed, gpus=GPUS, constrain=True)
        self.bed = bed
        self.jobs = Jobs(bed)
        self.opened: dict[str, set[str]] = {}
        self.log = [f"ALIQUOT_SEED={selection.seed()}"]

    def start(self) -> None:
        """Start a job that shows what it can open now, and again before it ends."""
        kind = self.draw.choice(KINDS)
        fifo = f"{self.bed.folder}/go-$SLURM_JOB_ID"
        script = (
            f"{probe(self.bed)}; mkfifo {fifo}; read x < {fifo}; {probe(self.bed)}; srun --overlap {probe(self.bed)}"
        )
        words = ("-w", "n1", f"--gres=gpu:a100_{kind}:1")
        used, types = self.host.used(), self.host.types()
        if kind not in {each for slot, each in types.items() if slot not in used}:
            return
        job = self.jobs.submit(script, *words)
        running(self.bed, job)
        until(lambda: len(looks(self.bed, job)) == 1, lambda: f"job {job} shows nothing")
        self.opened[job] = looks(self.bed, job)[0]
        slots = [slot for slot in types if self.host.files(slot) == self.opened[job]]
        self.log.append(f"job {job} of {kind} has slot {slots}")
        assert [types[slot] for slot in slots] == [kind]
        assert not set(slots) & used

    def end(self) -> None:
        """Let a job end: it must have opened the same devices to its end, in its script and in a new step."""
        if not self.opened:
            return
        job = self.draw.choice(sorted(self.opened))
        self.log.append(f"job {job} ends")
        self.bed.ok("sh", "-c", f"echo > {self.bed.folder}/go-{job}")
        until(lambda: self.bed.job(job, "JobState") == "COMPLETED", lambda: f"job {job} does not end", LATE_S)
        assert looks(self.bed, job) == [self.opened.pop(job)] * 3

    def change(self) -> None:
        """Request a random layout, kill the change at times, and finish or undo it."""
        gpus = self.draw.choice(("0", "1", "0-1"))
        words: tuple[str, ...] = ("--slots", "--gpu", gpus, "--mig", self.draw.choice(LAYOUTS))
        if self.draw.random() < 0.4:
            step, when = self.draw.choice(STEPS), self.draw.choice(("before", "after"))
            done = killed(self.host, step, when, *words)
            self.log.append(f"{' '.join(words)}, killed {when} {step}: {done.code}")
            assert done.code in (0, 20, -signal.SIGKILL, 128 + signal.SIGKILL), done
            if done.code not in (0, 20):
                words = (self.draw.choice(("--continue", "--undo")),)
        done = self.host.apply(*words, timeout=150)
        self.log.append(f"{' '.join(words)}: {done.code}")
        assert done.code in (0, 20), done

    def kill(self) -> None:
        """Kill a daemon of Slurm and start it again."""
        daemon = self.draw.choice(("slurmd", "slurmctld"))
        self.log.append(f"{daemon} is killed")
        self.bed.ok("sleep", SAVED_S)
        kill(self.host, daemon)
        until(lambda: self.bed.registered("n1"), lambda: self.bed.state("n1"))
        # 22.05 names the slots of jobs only some moments after its restart.
        until(lambda: len(self.host.used()) == len(self.opened), lambda: f"used: {self.host.used()}", LATE_S)

    def hold(self) -> None:
        """Assert what must hold after each event."""
        self.jobs.none_lost()
        assert {self.bed.job(job, "JobState") for job in self.opened} <= {"RUNNING"}
        assert len(self.host.lines()) == 7 * GPUS + 1
        taken = [file for files in self.opened.values() for file in files if "/nvidia-caps/" in file]
        assert len(taken) == len(set(taken))
        assert self.bed.ok("scontrol", "show", "reservations").startswith("No reservations")

    def play(self, events: int, *, daemons: bool) -> None:
        acts = [self.start, self.start, self.start, self.end, self.change, self.change, *([self.kill] * daemons)]
        try:
            for _ in range(events):
                self.draw.choice(acts)()
                self.hold()
            while self.opened:
                self.end()
        except BaseException:
            print("\n".join(self.log))
            raise


def test_a_short_history(bed: Bed) -> None:
    History(bed, selection.dice(f"slots {bed.release.name}")).play(10, daemons=False)


@pytest.mark.long(name="slurm slots: long history", about=ABOUT)
def test_a_long_history(bed: Bed) -> None:
    History(bed, selection.dice(f"slots {bed.release.name}")).play(60, daemons=True)
