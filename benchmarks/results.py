"""Figures as lines for the terminal and as the committed table."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from benchmarks.measure import Figure, machine

_HEAD = """# Benchmark results

Written by `make bench`; do not edit. Machine class: {machine}. Clocks on a machine that others use too: a ratio holds
longer than a second. Every ratio has both sides in one run, alternating; the figure is the median of the repeats and
the spread their least and greatest. *Measured* is a clock on this machine, *simulated* a clock with simulated GPUs
behind the NVML library, *replayed* a count, with call times that others measured on hardware (`benchmarks/times.py`),
*quoted* a figure of somebody else from another machine. Nothing here ran on a GPU.
"""
_QUICK = "\n**A quick run: too few repeats for figures.**\n"


def line(figure: Figure) -> str:
    """One figure on the terminal."""
    goal = f"   goal {figure.goal}: {figure.verdict}" if figure.goal else ""
    extent = f"   ({figure.spread})" if figure.spread else ""
    verdict = "" if figure.goal or figure.verdict == "-" else f"   {figure.verdict}"
    return f"[{figure.kind}] {figure.name}: {figure.value}{goal}{verdict}{extent}"


def table(figures: list[Figure], quick: bool) -> str:
    """The whole of RESULTS.md."""
    out = [_HEAD.format(machine=machine())]
    if quick:
        out.append(_QUICK)
    return "".join([*out, *(_section(group, rows) for group, rows in groupby(figures, key=lambda f: f.group))])


def updated(text: str, figures: list[Figure]) -> str:
    """RESULTS.md with the sections of these figures in place of its own, those that it lacks at its end; all else as it
    was.
    """
    for group, rows in groupby(figures, key=lambda f: f.group):
        before, heading, rest = text.partition(f"\n## {group}\n")
        after = rest.partition("\n## ")[1:] if heading else ("", "")
        text = before + _section(group, rows) + "".join(after)
    return text


def _section(group: str, rows: Iterable[Figure]) -> str:
    out = [f"\n## {group}\n\n| what | figure | goal | verdict | spread | kind |\n|---|---|---|---|---|---|\n"]
    for f in rows:
        out.append(f"| {f.name} | {f.value} | {f.goal or '-'} | {f.verdict} | {f.spread or '-'} | {f.kind} |\n")
    return "".join(out)
