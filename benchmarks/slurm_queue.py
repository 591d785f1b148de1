"""E12, a long queue: compare ``slurm apply`` with and without pending jobs.

Also measures what the queue adds to a change by hand, which is the time of Slurm only, and a controller's look at it.
"""

from __future__ import annotations

import http.client
import json
import os
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from statistics import median

from benchmarks.bench_slurm import DEFAULTS, KINDS, LAYOUTS, Changed, bed
from benchmarks.measure import Figure, Report, alternate, at_most, ratio, spread

from aliquot.slurm.client.command_client import ScontrolClient
from aliquot.slurm.controller.job_demand import job_queue
from system.slurm.bed import Bed
from system.slurm.release import OLD, Release
from system.slurm.transports import outside

JOBS, FEW = 20_000, 300
GOAL = 1.2
LOOK_GOAL_S = 0.5
KIND = "a100_1g.5gb"


def run(report: Report, group: str, release: Release, quick: bool) -> None:
    """Change two clusters in turn, one with the queue and one without."""
    jobs, turns = (FEW, 1) if quick else (JOBS, 6)
    for kind in KINDS[1:] if quick else KINDS:
        with ExitStack() as stack:
            sides: dict[str, Changed] = {}
            for name in ("empty", "full"):
                place = stack.enter_context(bed(release))
                sides[name] = Changed(place, kind, more=f"MaxJobCount={jobs + 100}")
                stack.callback(sides[name].close)
            fill(sides["full"].bed, jobs)
            took = alternate(turns, {name: partial(_whole, side) for name, side in sides.items()})
            hand = alternate(turns, {name: partial(_by_hand, side) for name, side in sides.items()})
        head = f"Slurm {release.name}, a {kind} node, `aliquot slurm apply`"
        for name, value in (("an empty queue", took["empty"]), (f"{jobs:,} queued jobs", took["full"])):
            text = f"{median(value):.2f} s median"
            report(Figure(group, f"{head}: {name}", text, "simulated", "", "-", spread(value, ".2f", " s")))
        over, each = ratio(took["full"], took["empty"])
        verdict, extent = at_most(over, GOAL), spread(each, ".2f")
        name = f"{head}: {jobs:,} queued jobs over an empty queue"
        report(Figure(group, name, f"{over:.2f}x", "simulated", f"<= {GOAL}x", verdict, extent))
        ours, theirs = (median(times["full"]) - median(times["empty"]) for times in (took, hand))
        name = f"{head}: {jobs:,} queued jobs add, and they add to the same change by hand"
        report(Figure(group, name, f"{ours:.2f} s and {theirs:.2f} s", "simulated", "", "-", ""))


def _whole(changed: Changed) -> float:
    return changed.ours(_other(changed)).whole


def _by_hand(changed: Changed) -> float:
    return changed.by_hand(_other(changed)).whole


def _other(changed: Changed) -> str:
    there, back = LAYOUTS
    return there if changed.now == back else back


def looks(report: Report, group: str, releases: Sequence[Release], quick: bool) -> None:
    """Measure a controller's look at a queue of jobs that all wait for GPUs, and what it reads of Slurm for it."""
    jobs = FEW if quick else JOBS
    for release in releases:
        with bed(release) as place, ExitStack() as stack:
            node = f"NodeName=n1 NodeAddr=127.0.0.1 Port=9 CPUs=8 RealMemory=1000 Gres=gpu:{KIND}:7 State=UNKNOWN"
            more = f"SlurmdTimeout=0\nMaxJobCount={jobs + 100}\n{DEFAULTS}"
            place.conf(f"{node}\nPartitionName=all Nodes=ALL Default=YES", more=more)
            place.controller()
            fill(place, jobs, kind=KIND)
            path = os.environ["PATH"]
            stack.callback(os.environ.__setitem__, "PATH", path)
            os.environ["PATH"] = f"{outside(place)}:{path}"
            slurm = ScontrolClient(str(place.etc / "slurm.conf"))
            took = [_look(slurm, jobs) for _ in range(5)]
        head = f"Slurm {release.name}, a look of `aliquot slurm controller` at {jobs:,} jobs that wait for GPUs"
        own, programs = ([each[n] for each in took] for n in (0, 1))
        verdict = at_most(median(own), LOOK_GOAL_S)
        text, extent = f"{median(own):.2f} s median", spread(own, ".2f", " s")
        report(Figure(group, f"{head}: its CPU", text, "simulated", f"<= {LOOK_GOAL_S} s", verdict, extent))
        text, extent = f"{median(programs):.2f} s median", spread(programs, ".2f", " s")
        report(Figure(group, f"{head}: CPU of the programs of Slurm that it runs", text, "simulated", "", "-", extent))


def _look(slurm: ScontrolClient, jobs: int) -> tuple[float, float]:
    """Return the CPU seconds of this process and of its children for one look."""
    before = os.times()
    queue = job_queue(slurm.queue(), slurm.partitions(), {}, time.time(), slurm.reservations())
    after = os.times()
    assert len(queue.demands) == jobs
    children = after.children_user + after.children_system - before.children_user - before.children_system
    return after.user + after.system - before.user - before.system, children


def fill(place: Bed, jobs: int, *, kind: str = "") -> None:
    """Submit jobs, each a record of its own (an array is one), over slurmrestd, because sbatch takes minutes.

    They are held, or request one device of ``kind``.
    """
    rest = place.rest()
    job: dict[str, object] = {"name": "waits", "hold": not kind, "current_working_directory": "/tmp"}
    if kind:
        job |= {"gres": f"gpu:{kind}:1"} if place.release is OLD else {"tres_per_node": f"gres/gpu:{kind}:1"}
    script = "#!/bin/sh\ntrue\n"
    if place.release is OLD:
        path, body = "v0.0.38", {"job": job | {"environment": {"PATH": "/bin"}}, "script": script}
    else:
        path, body = "v0.0.42", {"job": job | {"environment": ["PATH=/bin"], "script": script}}
    headers = {"X-SLURM-USER-TOKEN": rest.token, "X-SLURM-USER-NAME": "root", "Content-Type": "application/json"}
    wire = http.client.HTTPConnection(rest.url.removeprefix("http://"))
    text = json.dumps(body)
    for _ in range(jobs):
        wire.request("POST", f"/slurm/{path}/job/submit", text, headers)
        answer = wire.getresponse()
        response = answer.read()
        assert answer.status == 200, response
    wire.close()
