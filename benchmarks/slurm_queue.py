"""E12, a long queue: compare ``slurm apply`` with and without pending jobs.

Also measures what the queue adds to a change by hand, which is the time of Slurm only.
"""

from __future__ import annotations

import http.client
import json
from contextlib import ExitStack
from functools import partial
from statistics import median

from benchmarks.bench_slurm import KINDS, LAYOUTS, Changed, bed
from benchmarks.measure import Figure, Report, alternate, at_most, ratio, spread

from system.slurm.bed import Bed
from system.slurm.release import OLD, Release

JOBS, FEW = 20_000, 1_200
GOAL = 1.2


def run(report: Report, group: str, release: Release, quick: bool) -> None:
    """Change two clusters in turn, one with the queue and one without."""
    jobs, turns = (FEW, 2) if quick else (JOBS, 6)
    for kind in KINDS:
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


def fill(place: Bed, jobs: int) -> None:
    """Submit held jobs, each a record of its own (an array is one), over slurmrestd, because sbatch takes minutes."""
    rest = place.rest()
    job = {"name": "waits", "hold": True, "current_working_directory": "/tmp"}
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
