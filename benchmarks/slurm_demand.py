"""E12, layouts on demand: one job for an absent layout until its first instruction, many jobs, and none."""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import msgspec
import yaml
from benchmarks.bench_process import cpu_ticks, memory
from benchmarks.bench_slurm import DEFAULTS, bed
from benchmarks.measure import Figure, Report, at_most, spread

from system.slurm import demanded
from system.slurm.applying import Host
from system.slurm.bed import Bed, until
from system.slurm.release import Release

INTERVALS = {5.0: "a look each 5 s and glances between, as by default", 1.0: "a look each second"}
KINDS = ("a100_1g.5gb:7", "a100_3g.20gb:2")
JOBS, SECONDS, SLICES = 80, 1, 7
RECORDS = 100
INPUT = [list(INTERVALS), KINDS, JOBS, SECONDS, RECORDS, DEFAULTS]
RUNNING_GOAL_S = 5.0
_STAMP = "date +%s.%N"


class Lone(demanded.DynamicHost):
    """The only host of its cluster, which needs no address of its own. Its GPUs take the times of ``--latency``."""

    def __init__(self, place: Bed, template: str, latency: str) -> None:
        Host.__init__(self, place, "n1", template, latency=latency)


class OneGpu(demanded.Cluster):
    """A slurmctld with Slurm's default intervals, one host of one GPU with the layout ``first``, and the controller."""

    def __init__(
        self, place: Bed, template: str, first: str, interval: float, *, cpus: int = 2, latency: str = "none"
    ) -> None:
        self.bed = place
        # More cores than the host has, so that jobs never wait for a core.
        place.conf(demanded.CONF, more=f"{DEFAULTS}\nSlurmdParameters=config_overrides")
        place.controller()
        self.hosts = {"n1": Lone(place, template, latency)}
        words = f"CPUs={cpus} RealMemory=1000 Feature=mig"
        self.hosts["n1"].applied("--gpu", "0", "--mig", first, "--node-conf", words)
        self.settings = place.folder / "demand.yaml"
        self.history = place.folder / "history.json"
        self.more = {}
        self.write(limits={"interval": interval, "changes-per-hour": 1000})
        self.controller()
        until(lambda: "jobs may wait" in self.log(), self.log)

    def stamps(self, job: str) -> list[float]:
        """Return the times that a job wrote, in seconds of the epoch."""
        path = self.bed.folder / "out" / job
        return [float(word) for word in path.read_text().split()] if path.exists() else []


class Served(msgspec.Struct, frozen=True):
    """Seconds from a submission until three events.

    These are the controller's decision, the node taking jobs again, and the job's first instruction.
    """

    seen: float
    ready: float
    running: float


def pending(report: Report, group: str, release: Release, interval: float, repeats: int) -> None:
    """Measure jobs submitted at times independent of the controller's cycles, on a GPU that takes recorded times."""
    chance = random.Random(12)
    with bed(release) as place:
        cluster = OneGpu(place, "a100-sxm4-40gb", "7g.40gb", interval, latency="measured")
        found = []
        for n in range(repeats):
            time.sleep(1.1 + chance.random() * interval)
            found.append(_served(cluster, KINDS[n % 2]))
    head = f"Slurm {release.name}, a job for an absent layout, a GPU of the recorded times, {INTERVALS[interval]}"
    _report(report, group, f"{head}: submitted until decided", [s.seen for s in found])
    _report(report, group, f"{head}: decided until the node takes jobs", [s.ready - s.seen for s in found])
    _report(report, group, f"{head}: the node takes jobs until the job runs", [s.running - s.ready for s in found])
    _report(report, group, f"{head}: submitted until it runs", [s.running for s in found], RUNNING_GOAL_S)


def _served(cluster: OneGpu, kind: str) -> Served:
    before = cluster.log().count("n1 is ready")
    begin = time.time()
    job = cluster.submit(kind, _STAMP)
    seen = _when(lambda: f"is repartitioned for job {job}" in cluster.log(), cluster)
    ready = _when(lambda: cluster.log().count("n1 is ready") > before, cluster)
    cluster.ran(job)
    return Served(seen - begin, ready - begin, cluster.stamps(job)[0] - begin)


def _when(true: Callable[[], bool], cluster: OneGpu) -> float:
    """Return the time at which a condition became true, to the hundredth of a second."""
    deadline = time.time() + 60
    while not true():
        assert time.time() < deadline, cluster.log()
        time.sleep(0.01)
    return time.time()


def many(report: Report, group: str, release: Release, jobs: int) -> None:
    """Measure jobs of one slice, submitted all at once, on a GPU that is one instance at first."""
    with bed(release) as place:
        cluster = OneGpu(place, "h100-pcie", "7g.80gb", 1.0, cpus=SLICES)
        script = f"{_STAMP}; sleep {SECONDS}; {_STAMP}"
        kind = cluster.hosts["n1"].gres().split(":")[1].replace("7g.80gb", "1g.10gb")
        words = f"--gres=gpu:{kind}:1 --output={place.folder}/out/%j --chdir={place.folder} --wrap='{script}'"
        loop = f"for n in $(seq {jobs}); do sbatch --parsable {words} || exit 1; done"
        begin = time.time()
        numbers = place.ok("sh", "-c", loop).split()
        submitted = time.time() - begin
        until(lambda: all(len(cluster.stamps(n)) == 2 for n in numbers), cluster.log, 180)
        times = [cluster.stamps(n) for n in numbers]
        cuts = cluster.log().count(" is repartitioned for job ")
    starts, ends = sorted(s for s, _ in times), sorted(e for _, e in times)
    span = ends[-1] - starts[0]
    busy = sum(e - s for s, e in times) / span
    limit = -(-jobs // SLICES) * SECONDS
    head = f"Slurm {release.name}, {jobs} jobs of one slice and {SECONDS} s on one H100"
    value = f"{ends[-1] - begin:.1f} s, of which {submitted:.1f} s pass until the last is submitted"
    report(Figure(group, f"{head}: first submitted until last ended", value, "simulated"))
    report(
        Figure(group, f"{head}: until the first runs, after {cuts} change", f"{starts[0] - begin:.1f} s", "simulated")
    )
    # A slice is free from the end of a job until the seventh start after it.
    gaps = [later - end for end, later in zip(ends, starts[SLICES:], strict=False)]
    value = f"{span:.1f} s, {span / limit:.2f}x, {busy:.1f} of {SLICES} slices busy in the mean"
    name = f"{head}: first start to last end, {limit} s being the least with {SLICES} side by side"
    report(Figure(group, name, value, "simulated"))
    _report(report, group, f"{head}: a slice is free until its next job runs (Slurm's own)", gaps)


def idle(report: Report, group: str, releases: Sequence[Release], seconds: float) -> None:
    """Measure an idle controller of many records, one per release side by side."""
    with ExitStack() as stack:
        sites = [(r, Idle(stack.enter_context(bed(r)))) for r in releases]
        time.sleep(6)
        before = [site.meter() for _, site in sites]
        begin = time.time()
        time.sleep(seconds)
        minute = 60 / (time.time() - begin)
        for (release, site), first in zip(sites, before, strict=True):
            calls, spent = (b - a for a, b in zip(first, site.meter(), strict=True))
            head = f"Slurm {release.name}, the controller of {RECORDS} records, nothing pending, an idle minute"
            text = f"{calls * minute:.0f}, and {RECORDS / 5:g} nodes asked of what they have"
            extent = f"over {seconds:.0f} s"
            report(Figure(group, f"{head}: requests to slurmctld", text, "simulated", spread=extent))
            text = f"{spent * minute:.2f} s"
            report(
                Figure(
                    group, f"{head}: CPU, with the programs of Slurm that it calls", text, "simulated", spread=extent
                )
            )
            report(Figure(group, f"{head}: memory", str(memory(site.pid)), "simulated"))


class Idle:
    """Node records of a real slurmctld without slurmd. Their facts were recorded."""

    def __init__(self, place: Bed) -> None:
        self._bed = place
        name = f"n[001-{RECORDS:03d}]"
        gres = "Gres=gpu:a100_1g.5gb:7,gpu:a100:1"
        nodes = f"NodeName={name} NodeAddr=127.0.0.1 Port=9 CPUs=2 RealMemory=1000 {gres} State=UNKNOWN"
        place.conf(
            f"{nodes}\nPartitionName=all Nodes=ALL Default=YES", more=f"SlurmdTimeout=0\nMaxNodeCount={RECORDS + 50}"
        )
        place.controller()
        host = Host(place)
        host.ok("apply", "--gpu", "0", "--mig", "1g.5gb*7")
        facts = place.folder / "facts.json"
        facts.write_text(host.ok("slurm", "node", "--node-name", "n001", "--dev-root", "/", "-o", "json"))
        settings = place.folder / "demand.yaml"
        self._write(settings, name, facts)
        words = ("-m", "aliquot", "slurm", "controller", "-f", str(settings))
        self.pid = place.start("controller", sys.executable, *words).pid
        until(lambda: "jobs may wait" in place.log("controller"), lambda: place.log("controller"))

    def meter(self) -> tuple[float, float]:
        """Return all requests to slurmctld, and the CPU seconds of the controller and its child processes."""
        return float(self._requests()), cpu_ticks(self.pid) + _children(self.pid)

    def _requests(self) -> int:
        """Return slurmctld's own count of requests, to which each reading adds one."""
        answer = self._bed.ok("sdiag")
        lines = answer.partition("Remote Procedure Call statistics by message type")[2].partition("\n\n")[0]
        return sum(int(line.partition("count:")[2].split()[0]) for line in lines.splitlines() if "count:" in line)

    @staticmethod
    def _write(settings: Path, name: str, facts: Path) -> None:
        records = [{"nodes": name, "reach": f"sh -c 'exec cat {facts}'"}]
        document = {"version": "aliquot-slurm/v1", "records": records, "history": f"{settings}.history"}
        settings.write_text(yaml.safe_dump(document))


def _children(pid: int) -> float:
    """Return the CPU seconds of a process's children that have ended."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[13]) + int(words[14])) / os.sysconf("SC_CLK_TCK")


def _report(report: Report, group: str, name: str, values: Sequence[float], goal: float = 0.0) -> None:
    text, verdict = f"{median(values):.2f} s median", at_most(median(values), goal) if goal else "-"
    report(
        Figure(group, name, text, "simulated", f"<= {goal:g} s" if goal else "", verdict, spread(values, ".2f", " s"))
    )
