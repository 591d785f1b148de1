"""Recorder of start orders: ``PYTHONPATH=tests python -m system.slurm.queues`` writes ``tests/recorded/queues``.

Each queue has a cluster of its own while it plays, because Slurm's backfill plans all partitions in one table of times.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from random import Random

from support.slurmqueues import End, Event, Open, Recording, Request, Reserve, Step, Submit, save

from .bed import Bed, until
from .release import RELEASES, Release

_W, _H, _Q, _S = "7g.40gb", "3g.20gb", "2g.10gb", "1g.5gb"
NODES: dict[str, tuple[dict[str, int], ...]] = {
    "a": ({_H: 1, _Q: 1, _S: 2},),
    "b": ({_H: 2, _S: 7},),
    "c": ({_Q: 3, _S: 1}, {_H: 1, _Q: 1, _S: 2}),
    "d": ({_W: 1, _H: 2, _Q: 3, _S: 8},),
    "e": ({_H: 2, _S: 7}, {_H: 4}),
    "f": ({_W: 2, _H: 4, _Q: 6, _S: 16},),
    "g": ({_Q: 3, _S: 1}, {_H: 2, _S: 7}, {_W: 1}),
    "h": ({_W: 2, _H: 6, _S: 21}, {_H: 4, _Q: 9, _S: 17}),
}
"""The devices by type on the nodes of each partition: 1 to 16 GPUs."""
ABSENT = "4g.20gb"
"""A type that only nodes have which never answer, as a layout that is not made."""
STEPS, QUEUES = 8, 50
SETTLED_S, POLL_S = 3.5, 0.5
MORE = """SchedulerParameters=sched_interval=2,bf_interval=1,bf_max_time=60,batch_sched_delay=0
SlurmdParameters=config_overrides
PriorityType=priority/basic
"""


def group_nodes(group: str) -> dict[str, dict[str, int]]:
    """Return the devices by type of a partition's nodes."""
    return {f"{group}{n}": counts for n, counts in enumerate(NODES[group], 1)}


class Queue:
    """A queue of a seed on the nodes of a group. Its events depend on what runs."""

    def __init__(self, group: str, seed: int) -> None:
        self.group, self.seed = group, seed
        self.nodes = group_nodes(group)
        self.unavailable = f"{group}9"
        self.draw = Random(seed)
        self.minutes = self.draw.sample(range(5, 125, 3), 40)
        self.begin = time.time() // 60 * 60
        self.numbers = 0
        self.running: dict[str, str] = {}
        self.closed: set[str] = set()
        self.reserved = False
        self.steps: list[Step] = []

    @property
    def recording(self) -> Recording:
        nodes = {**self.nodes, self.unavailable: {ABSENT: 1}}
        return Recording(self.seed, nodes, tuple(self.steps), (self.unavailable,))

    def event(self) -> Event:
        """Draw the next event."""
        draw = self.draw
        choice = draw.random() if self.steps else 0.0
        names = sorted(self.nodes)
        if choice < 0.25 or not self.running:
            return Submit(tuple(self._request() for _ in range(draw.randint(*((1, 4) if self.steps else (4, 9))))))
        if choice < 0.32 and not self.reserved:
            self.reserved = True
            return Reserve(draw.choice(names), draw.choice((7, 17)), 60)
        if choice < 0.4:
            node = draw.choice(sorted(self.closed) or names)
            return Open(node, node in self.closed)
        return End(tuple(sorted(draw.sample(sorted(self.running), min(len(self.running), draw.randint(1, 3))))))

    def _request(self) -> Request:
        draw = self.draw
        kinds = sorted({kind for counts in self.nodes.values() for kind in counts})
        kind = ABSENT if draw.random() < 0.06 else draw.choice(kinds)
        most = max((counts.get(kind, 0) for counts in self.nodes.values()), default=0)
        self.numbers += 1
        return Request(
            self.numbers,
            kind,
            1 if kind == ABSENT else min(draw.choice((1, 1, 1, 2, most // 2 or 1, most)), most),
            draw.choice((1, 1, 1, 1, len(self.nodes))),
            self.minutes[self.numbers % len(self.minutes)],
            draw.choice((100, 200, 200, 300, 400)),
            draw.choice((0, 0, 0, 3, 6)),
        )

    def commands(self, event: Event) -> list[str]:
        """Return the commands that make an event happen in the cluster."""
        down, up = (f"scontrol update partitionname={self.group} state={s}" for s in ("down", "up"))
        match event:
            case Submit(jobs):
                return [down, *(self._sbatch(each) for each in jobs), up]
            case End(jobs):
                wait = 'while [ "$(squeue -h -t CG)" ]; do sleep 0.1; done'
                return [down, f"scancel {' '.join(f'$({self._number(job)})' for job in jobs)}", wait, up]
            case Reserve(node, start, minutes):
                words = f"starttime=now+{start}minutes duration={minutes} nodes={node} users=root flags=ignore_jobs"
                return [f"scontrol create reservation reservation=site {words}"]
            case Open(node, is_open):
                state = "state=resume" if is_open else "state=drain reason=test"
                return [f"scontrol update nodename={node} {state}"]

    def _sbatch(self, job: Request) -> str:
        array = f"--array=0-{job.tasks - 1} " if job.tasks else ""
        return (
            f"sbatch -p {self.group} --job-name={job.number} -o /dev/null --chdir=/tmp {array}"
            f"--gres=gpu:{job.kind}:{job.count} -N{job.nodes} -n{job.nodes} --time={job.minutes} "
            f"--priority={job.priority} --no-requeue --wrap='exec sleep 3600' 2>&1 || true"
        )

    def _number(self, job: str) -> str:
        number, _, task = job.partition("_")
        shown = f"squeue -h -r -n {number} -o %F"
        return f"echo $({shown} | head -n1){'_' + task if task else ''}"

    def observed(self, event: Event, jobs: Mapping[str, tuple[str, str, str]], at: float) -> None:
        """Record an event and what Slurm shows after it: the state, reason and nodes of each job."""
        self.running = {key: nodes for key, (state, _, nodes) in jobs.items() if state == "RUNNING"}
        reasons = {key: reason for key, (state, reason, _) in jobs.items() if state == "PENDING"}
        if isinstance(event, Open):
            self.closed = self.closed - {event.node} if event.open else self.closed | {event.node}
        self.steps.append(Step(round(at - self.begin), event, self.running, reasons))


class QueueCluster:
    """A cluster with the nodes of a group, and one that never answers."""

    def __init__(self, bed: Bed, group: str) -> None:
        self.bed, self.group = bed, group
        nodes = {**group_nodes(group), f"{group}9": {ABSENT: 1}}
        lines, gres = [], []
        for name, counts in nodes.items():
            shown = ",".join(f"gpu:{kind}:{n}" for kind, n in counts.items())
            unavailable = " State=DOWN Reason=absent" if counts == {ABSENT: 1} else ""
            lines.append(bed.node(name, f"CPUs=64 RealMemory=8000 Gres={shown}{unavailable}"))
            first = 0
            for kind, n in counts.items():
                gres.append(f"NodeName={name} Name=gpu Type={kind} File=/dev/nvidia[{first}-{first + n - 1}]")
                first += n
        lines.append(f"PartitionName={group} Nodes={','.join(nodes)} MaxTime=INFINITE")
        bed.devices([(f"/dev/nvidia{n}", 120, n) for n in range(64)])
        bed.conf("\n".join(lines), more=MORE, gres="\n".join(gres) + "\n")
        bed.controller()
        for name in group_nodes(group):
            bed.slurmd(name)

    def play(self, seed: int, steps: int = STEPS) -> Recording:
        """Run a queue and leave the cluster empty."""
        queue = Queue(self.group, seed)
        for _ in range(steps):
            event = queue.event()
            self.bed.ok("sh", "-ec", "\n".join(queue.commands(event)))
            self._respond(queue)
            at = time.time()
            queue.observed(event, self._settled(), at)
        self._clean(queue)
        return queue.recording

    def _respond(self, queue: Queue) -> None:
        """Wait until Slurm has pinged a node that was resumed. No job starts there before."""
        shown = ["scontrol", "show", "nodes", ",".join(queue.nodes)]
        until(lambda: "NOT_RESPONDING" not in self.bed.ok(*shown), lambda: self.bed.ok(*shown), 60)

    def _settled(self) -> dict[str, tuple[str, str, str]]:
        """Return the jobs when nothing has started or ended for a while."""
        since, last = time.monotonic(), self._jobs()
        while time.monotonic() - since < SETTLED_S:
            time.sleep(POLL_S)
            current = self._jobs()
            if {k: v[0] for k, v in current.items()} != {k: v[0] for k, v in last.items()}:
                since = time.monotonic()
            last = current
        return last

    def _jobs(self) -> dict[str, tuple[str, str, str]]:
        found = {}
        for line in self.bed.ok("squeue", "-h", "-r", "-o", "%j|%K|%T|%r|%N").splitlines():
            number, task, state, reason, nodes = line.split("|")
            found[number if task == "N/A" else f"{number}_{task}"] = (state, reason, nodes)
        return found

    def _clean(self, queue: Queue) -> None:
        self.bed.ok("scancel", "-p", queue.group)
        until(lambda: not self._jobs(), "the jobs do not end", 60)
        if queue.reserved:
            self.bed.ok("scontrol", "delete", "reservation=site")
        for name in sorted(queue.closed):
            self.bed.ok("scontrol", "update", f"nodename={name}", "state=resume")
        shown = ["sinfo", "-h", "-N", "-o", "%T"]
        until(lambda: self.bed.ok(*shown).split().count("idle") == len(queue.nodes), lambda: self.bed.ok(*shown), 60)


def record(release: Release, group: str, seeds: Sequence[int]) -> list[Recording]:
    """Run queues of these seeds on a cluster of a release, one after another."""
    folder = Path(tempfile.mkdtemp(prefix="aliquot-slurm-", dir="/tmp"))
    bed = Bed(release, folder)
    try:
        cluster = QueueCluster(bed, group)
        return [cluster.play(seed) for seed in seeds]
    finally:
        bed.close()
        shutil.rmtree(folder, ignore_errors=True)


def record_all(release: Release) -> None:
    """Record the queues of a release, with a process for each group, and replace its recordings."""
    groups = sorted(NODES)
    seeds = [range(n, QUEUES, len(groups)) for n in range(len(groups))]
    with ProcessPoolExecutor(len(groups)) as processes:
        found = processes.map(record, [release] * len(groups), groups, seeds)
        save(release.name, sorted((each for part in found for each in part), key=lambda each: each.seed))


if __name__ == "__main__":
    for each in RELEASES:
        record_all(each)
