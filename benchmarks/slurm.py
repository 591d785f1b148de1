"""E12: Slurm. Real slurmctld and slurmd of each installed release, over simulated GPUs that take no time.

Hardware would add 0.5 to 1.9 s per repartition, as others measured. Only in the measurement of a job for an absent
layout do the GPUs take recorded times (``sim start --latency measured``).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from compileall import compile_dir
from statistics import median

import msgspec
from benchmarks import slurm_demand, slurm_queue, slurm_verbs
from benchmarks.bench_slurm import DYNAMIC, KINDS, LAYOUTS, STATIC, Changed, Took, bed
from benchmarks.measure import Figure, Report, digest, load, ratio, spread

import aliquot
from system.slurm.release import NEW, RELEASES, Release

GROUP = "E12 Slurm"
HOW = {DYNAMIC: "a dynamic node", STATIC: "a node of slurm.conf"}


def run(report: Report, quick: bool) -> None:
    """Run the experiment. Skips, with a line, releases that are not installed. ``quick`` takes the newest one alone."""
    # An installed package has its byte code.
    compile_dir(os.path.dirname(aliquot.__file__), quiet=2)
    here = [release for release in RELEASES if not release.missing]
    for release in RELEASES:
        if release.missing:
            report(Figure(GROUP, f"Slurm {release.name}", "not measured", "simulated", "", "skipped", release.missing))
    if here:
        report(load(GROUP))
        code = digest(msgspec.json.encode([LAYOUTS, slurm_demand.INPUT]))
        report(Figure(GROUP, "input: the layouts, the jobs, their number", f"sha256 {code}", "simulated"))
    newest = NEW if NEW in here else next(reversed(here), None)
    if quick:
        here = [newest] if newest else []
    for release in here:
        # The long queue takes the other kind.
        for kind in KINDS[:1] if quick else KINDS:
            _changes(report, release, kind, 2 if quick else 4)
    for release in here:
        for interval in list(slurm_demand.INTERVALS)[-1 if quick else 0 :]:
            slurm_demand.pending(report, GROUP, release, interval, 1 if quick else 3)
    if newest:
        slurm_demand.many(report, GROUP, newest, 16 if quick else slurm_demand.JOBS)
        slurm_demand.idle(report, GROUP, here, 5.0 if quick else 60.0)
        slurm_queue.run(report, GROUP, newest, quick)
        slurm_queue.looks(report, GROUP, here, quick)
    slurm_verbs.run(report, GROUP, quick)


def _changes(report: Report, release: Release, kind: str, turns: int) -> None:
    """Measure both ways in turn, each equally often in each direction."""
    ours: list[Took] = []
    theirs: list[Took] = []
    there, back = reversed(LAYOUTS)
    with bed(release) as place:
        changed = Changed(place, kind)
        try:
            for turn in range(turns):
                target = there if changed.now == back else back
                first, second = (changed.ours, changed.by_hand) if turn % 2 == 0 else (changed.by_hand, changed.ours)
                for act in (first, second):
                    (ours if act == changed.ours else theirs).append(act(target))
                    target = there if changed.now == back else back
        finally:
            changed.close()
    head = f"Slurm {release.name}, {HOW[kind]}, 7x1g to 2x3g and back"
    _report(report, f"{head}: `aliquot slurm apply`, the whole command", [t.whole for t in ours])
    _report(report, f"{head}: of this from drain to resume", [t.drained for t in ours])
    _report(report, f"{head}: the same by hand, no time for typing and looking", [t.drained for t in theirs])
    over, each = ratio([t.drained for t in ours], [t.drained for t in theirs])
    more = median(a.drained - b.drained for a, b in zip(ours, theirs, strict=True))
    value = f"{over:.1f}x, {more:.2f} s more"
    report(
        Figure(
            GROUP, f"{head}: from drain to resume, ours over by hand", value, "simulated", "", "-", spread(each, ".1f")
        )
    )


def _report(report: Report, name: str, values: Sequence[float]) -> None:
    text = f"{median(values):.2f} s median"
    report(Figure(GROUP, name, text, "simulated", "", "-", spread(values, ".2f", " s")))
