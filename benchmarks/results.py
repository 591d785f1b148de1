"""Output of figures, as lines for the terminal and as the committed table."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from benchmarks.measure import Figure, machine

_HEAD = """# Benchmark results

This page has the measurements of Aliquot's time, memory and traffic. `make bench` writes it; do not
edit it.

Host class: {machine}.

Other programs share this host, so ratios are more stable than seconds. Every ratio has both sides
in one run, alternating. A figure is the median of the repeats; the spread is their minimum and
maximum. Nothing here ran on a GPU.

- *measured*: a clock on this host
- *simulated*: a clock on this host, with simulated GPUs behind the NVML library
- *replayed*: a count, with call times that others measured on hardware (`benchmarks/times.py`)
- *quoted*: another project's figure, from another host
"""
_QUICK = "\n**A quick run: too few repeats for figures.**\n"


def line(figure: Figure) -> str:
    """Print one figure on the terminal."""
    goal = f"   goal {figure.goal}: {figure.verdict}" if figure.goal else ""
    extent = f"   ({figure.spread})" if figure.spread else ""
    verdict = "" if figure.goal or figure.verdict == "-" else f"   {figure.verdict}"
    return f"[{figure.kind}] {figure.name}: {figure.value}{goal}{verdict}{extent}"


def table(figures: list[Figure], quick: bool) -> str:
    """Return the whole of RESULTS.md."""
    out = [_HEAD.format(machine=machine())]
    if quick:
        out.append(_QUICK)
    return "".join([*out, *(_section(group, rows) for group, rows in groupby(figures, key=lambda f: f.group))])


def updated(text: str, figures: list[Figure]) -> str:
    """Return RESULTS.md with the sections of these figures replaced, and new sections added at the end."""
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
