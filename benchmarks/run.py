"""``make bench``: runs the experiments, prints each figure as it comes, and writes benchmarks/RESULTS.md.

One run has both sides of every ratio. Seeds are pinned and inputs are named by their SHA-256, so that a second run on
the same kind of host gives the same table except for the clocks.
"""

from __future__ import annotations

import argparse
import os
import sys
from importlib import import_module

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
EXPERIMENTS = {
    "plan": "planning time",
    "layout": "the layout of a node for a queue of demands",
    "totals": "requests over eight GPUs",
    "repartition": "E3: one GPU, all pairs",
    "apply": "E6: software over raw calls",
    "start": "E7: start of the command",
    "agent": "E8: one agent, idle and busy",
    "allocate": "E9: Allocate",
    "devices": "E10: the devices agent",
    "admission": "E11: admission and capacity",
    "policy": "E11: demand served under Slurm",
    "slurm": "E12: Slurm",
    "page": "E13: the page",
    "claims": "E15: claims of Dynamic Resource Allocation",
    "metrics": "E14: figures for Prometheus, and what pieces are used for",
}


def main() -> int:
    parser = argparse.ArgumentParser(description="Aliquot's benchmarks")
    parser.add_argument("--only", choices=sorted(EXPERIMENTS), action="append", help="run only this experiment")
    parser.add_argument("--quick", action="store_true", help="few repeats, to test the benchmarks, not for figures")
    parser.add_argument(
        "--out", metavar="FILE", help="file for the table (default: RESULTS.md, if all experiments run)"
    )
    parser.add_argument("--update", action="store_true", help="replace only the sections of this run in RESULTS.md")
    args = parser.parse_args()
    sys.path[:1] = [ROOT, os.path.join(ROOT, "tests")]
    from benchmarks.measure import Figure
    from benchmarks.results import line, table, updated

    figures: list[Figure] = []

    def report(figure: Figure) -> None:
        figures.append(figure)
        print(line(figure), flush=True)

    for name, title in EXPERIMENTS.items():
        if not args.only or name in args.only:
            print(f"\n== {title}", flush=True)
            import_module(f"benchmarks.{name}").run(report, args.quick)
    whole = not args.only and not args.quick
    usual = os.path.join(ROOT, "benchmarks", "RESULTS.md")
    out = args.out or (usual if whole or args.update else None)
    if out:
        with open(usual) as file:
            text = updated(file.read(), figures) if args.update else table(figures, args.quick)
        with open(out, "w") as file:
            file.write(text)
        print(f"\nwritten: {os.path.relpath(out)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
