"""Queues for the policy bench: seeded small ones, seeded large ones, and held-out parts of a trace."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path
from random import Random

import msgspec

TRACE = Path(__file__).parent / "data" / "alibaba-gpu-2023-held-out.csv.gz"
PROFILES = {"1g.5gb": 1, "2g.10gb": 2, "3g.20gb": 3, "4g.20gb": 4, "7g.40gb": 7}
"""The profiles of an A100-40GB, and their compute slices."""
MOST = {"1g.5gb": 7, "2g.10gb": 3, "3g.20gb": 2, "4g.20gb": 1, "7g.40gb": 1}
FIRST = (
    (("7g.40gb", 0),),
    (("3g.20gb", 0), ("3g.20gb", 4)),
    tuple(("1g.5gb", n) for n in range(7)),
    (("4g.20gb", 0), ("2g.10gb", 4), ("1g.5gb", 6)),
)
"""Layouts that a GPU has at the beginning."""
Placed = tuple[tuple[str, int], ...]


class CaseJob(msgspec.Struct, frozen=True):
    """A job, or an array of ``tasks``, that requests ``count`` instances on one node for ``seconds`` each."""

    at: float
    profile: str
    seconds: float
    count: int = 1
    tasks: int = 1
    priority: int = 100
    limit_s: int = 0
    user: str = "u0"

    @property
    def slices(self) -> int:
        return PROFILES[self.profile] * self.count


class Case(msgspec.Struct, frozen=True):
    """GPUs with their first layouts, by node, and a queue. ``reserved`` is a node with its first and last second."""

    name: str
    nodes: tuple[tuple[Placed, ...], ...]
    jobs: tuple[CaseJob, ...]
    horizon_s: float
    reserved: tuple[int, float, float] | None = None

    @property
    def gpus(self) -> int:
        return sum(len(node) for node in self.nodes)


def small(seed: int) -> Case:
    """Draw one or two GPUs on a node, and three to six jobs, few enough for an exact optimum."""
    draw = Random(f"small {seed}")
    gpus = draw.choice((1, 2))
    jobs = []
    for _ in range(draw.randint(3, 6)):
        profile = draw.choice(tuple(PROFILES))
        seconds = float(draw.choice((600, 1200, 1800, 3600)))
        jobs.append(_job(draw, profile, seconds, float(draw.choice((0, 0, 0, 300, 900))), 1))
    return Case(f"small {seed}", (tuple(draw.choice(FIRST) for _ in range(gpus)),), tuple(jobs), 7200.0)


def large(seed: int) -> Case:
    """Draw a queue with arrays, bursts, mixed sizes, priorities and sometimes a reservation, on 1 to 16 GPUs."""
    draw = Random(f"large {seed}")
    nodes = draw.choice(((1,), (2,), (4,), (2, 2), (8,), (4, 4), (8, 8), (4, 4, 4, 4)))
    gpus, horizon = sum(nodes), 4 * 3600.0
    load = draw.choice((0.5, 0.9, 1.3))
    jobs: list[CaseJob] = []
    at, work = 0.0, 0.0
    while at < horizon:
        for _ in range(draw.choice((1, 1, 1, 6))):
            profile = draw.choice(tuple(PROFILES))
            tasks = draw.choice((1, 1, 1, 1, 2 * gpus))
            seconds = draw.choice((300.0, 900.0, 1800.0, 3600.0)) * draw.uniform(0.5, 1.0)
            jobs.append(_job(draw, profile, seconds, at, tasks))
            work += jobs[-1].slices * tasks * seconds
        at = max(at, work / (load * gpus * 7)) + draw.expovariate(1 / 60.0)
    layouts = tuple(tuple(draw.choice(FIRST) for _ in range(n)) for n in nodes)
    reserved = (draw.randrange(len(nodes)), 3600.0, 7200.0) if draw.random() < 0.3 else None
    return Case(f"large {seed}", layouts, tuple(jobs), horizon, reserved)


def trace(seed: int, load: float) -> Case:
    """Draw arrivals of the held-out half of the trace, in its mix of sizes, on two nodes of 8 GPUs.

    The trace's tasks last for days and never fill a cluster, so its authors' mix is kept and the durations are
    compressed: the median becomes 20 minutes, with a bound of 2 hours.
    """
    draw = Random(f"trace {seed}")
    rows = _rows()
    median = sorted(seconds for _, seconds in rows)[len(rows) // 2]
    nodes, horizon = (8, 8), 6 * 3600.0
    jobs: list[CaseJob] = []
    at, work = 0.0, 0.0
    goal = load * sum(nodes) * 7
    while at < horizon:
        profile, seconds = draw.choice(rows)
        jobs.append(_job(draw, profile, min(7200.0, max(30.0, seconds * 1200 / median)), at, 1))
        work += jobs[-1].slices * jobs[-1].seconds
        at = work / goal * draw.uniform(0.9, 1.1)
    layouts = tuple(tuple(draw.choice(FIRST) for _ in range(n)) for n in nodes)
    return Case(f"trace {seed} {load}", layouts, tuple(jobs), horizon)


def _job(draw: Random, profile: str, seconds: float, at: float, tasks: int) -> CaseJob:
    return CaseJob(
        at=at,
        profile=profile,
        seconds=seconds,
        count=1 if draw.random() < 0.8 else draw.randint(1, MOST[profile]),
        tasks=tasks,
        priority=draw.choice((100, 100, 200, 300)),
        limit_s=int(-(-seconds * draw.choice((1, 1, 2, 4)) // 60) * 60),
        user=f"u{draw.randrange(4)}",
    )


def _rows() -> Sequence[tuple[str, float]]:
    names = {name.partition("g.")[0]: name for name in PROFILES}
    lines = gzip.decompress(TRACE.read_bytes()).decode().splitlines()
    rows = [line.split(",") for line in lines if line[:1].isdigit()]
    return [(names[slices], float(seconds)) for slices, seconds in rows]
