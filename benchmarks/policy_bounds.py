"""The exact optimum of small queues, and an upper bound for large ones, which no policy can beat.

Both know the whole queue and every duration from the beginning, and change layouts in no time. They may ignore
priorities, but not stop a job.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator

from benchmarks.policy_cases import PROFILES, Case, CaseJob

SIZES = {"1g.5gb": 1, "2g.10gb": 2, "3g.20gb": 4, "4g.20gb": 4, "7g.40gb": 8}
STARTS = {"1g.5gb": range(7), "2g.10gb": (0, 2, 4), "3g.20gb": (0, 4), "4g.20gb": (0,), "7g.40gb": (0,)}
"""Memory slices of each profile, and where it may begin on an A100."""
NODES = 200_000
"""Bound on the search for an optimum; a case that needs more is not counted."""
Busy = tuple[tuple[float, float], ...]
"""Times at which one memory slice is in use."""


def optimum(case: Case) -> float | None:
    """Return the most slice-seconds that any order and any layouts serve, or None if the search takes too long.

    It tries the jobs in every order and on all placements, each at its first possible time. That covers an optimum,
    because to start earlier never serves less.
    """
    jobs = tuple(sorted((job for job in case.jobs for _ in range(job.tasks)), key=lambda job: job.at))
    search = _Search(case, jobs)
    try:
        return search.best()
    except _TooManyNodesError:
        return None


class _TooManyNodesError(Exception):
    """The search is too long."""


class _Search:
    def __init__(self, case: Case, jobs: tuple[CaseJob, ...]) -> None:
        self._horizon = case.horizon_s
        self._gpus = case.gpus
        self._most = bound(case)
        self._found = 0.0
        self._visited = 0
        self._jobs = jobs

    def best(self) -> float:
        empty: tuple[tuple[Busy, ...], ...] = tuple(((),) * 8 for _ in range(self._gpus))
        self._step(Counter(self._jobs), empty, 0.0)
        return self._found

    def _step(self, left: Counter[CaseJob], busy: tuple[tuple[Busy, ...], ...], served: float) -> None:
        self._visited += 1
        if self._visited > NODES:
            raise _TooManyNodesError
        self._found = max(self._found, served)
        rest = sum(self._worth(job, job.at) * n for job, n in left.items())
        if self._found >= self._most - 1e-6 or served + rest <= self._found + 1e-6:
            return
        order = sorted(left, key=lambda job: (-self._worth(job, job.at), job.at))
        for job in order:
            options = sorted(self._options(job, busy), key=lambda option: option[0])
            for start, after in options:
                if (more := self._worth(job, start)) > 0:
                    self._step(left - Counter((job,)), after, served + more)

    def _worth(self, job: CaseJob, start: float) -> float:
        return job.slices * max(0.0, min(job.seconds, self._horizon - start))

    def _options(
        self, job: CaseJob, busy: tuple[tuple[Busy, ...], ...]
    ) -> Iterator[tuple[float, tuple[tuple[Busy, ...], ...]]]:
        """Yield each placement's first time, and the slices in use with it. Equal ones are omitted."""
        seen: set[object] = set()
        for chosen in self._placements(job):
            if not chosen:
                continue
            spans = [busy[gpu][slot] for gpu, slot in chosen]
            start = _first(spans, job.at, job.seconds)
            after = [list(gpu) for gpu in busy]
            for gpu, slot in chosen:
                after[gpu][slot] = tuple(sorted((*busy[gpu][slot], (start, start + job.seconds))))
            key = tuple(sorted(map(tuple, after)))
            if key not in seen:
                seen.add(key)
                yield start, key

    def _placements(self, job: CaseJob) -> Iterator[tuple[tuple[int, int], ...]]:
        """Yield the memory slices of each way to place the job's instances."""
        size = SIZES[job.profile]
        places = [(gpu, start) for gpu in range(self._gpus) for start in STARTS[job.profile]]
        for chosen in itertools.combinations(places, job.count):
            slots = tuple((gpu, slot) for gpu, start in chosen for slot in range(start, start + size))
            if len(set(slots)) == len(slots):
                yield slots


def _first(spans: Iterable[Busy], at: float, seconds: float) -> float:
    """Return the first time from ``at`` on at which all of these slices are free for so long."""
    taken = sorted({span for each in spans for span in each})
    for start, end in taken:
        if start < at + seconds and end > at:
            at = end
    return at


def bound(case: Case) -> float:
    """Return an upper bound on the slice-seconds that a case's GPUs can serve.

    Before any moment they serve no more than has been submitted, and after it no more than is still possible; both at
    most what their geometries hold.
    """
    moments = sorted({0.0, *(job.at for job in case.jobs), case.horizon_s})
    step = max(1, len(moments) // 40)
    return min(
        _held(case, _before(case, t), t) + _held(case, _after(case, t), case.horizon_s - t) for t in moments[::step]
    )


def _before(case: Case, t: float) -> Counter[str]:
    return _work(case, ((job, min(job.seconds, t - job.at)) for job in case.jobs))


def _after(case: Case, t: float) -> Counter[str]:
    return _work(case, ((job, min(job.seconds, case.horizon_s - max(job.at, t))) for job in case.jobs))


def _work(case: Case, parts: Iterable[tuple[CaseJob, float]]) -> Counter[str]:
    """Sum instance-seconds by profile."""
    out: Counter[str] = Counter()
    for job, seconds in parts:
        if seconds > 0:
            out[job.profile] += seconds * job.count * job.tasks  # type: ignore[assignment]
    return out


def _geometries() -> list[Counter[str]]:
    """Return every set of instances that fits on a GPU and is in no larger one."""
    found: set[tuple[str, ...]] = set()

    def grow(used: frozenset[int], names: tuple[str, ...], compute: int) -> None:
        found.add(tuple(sorted(names)))
        for name, starts in STARTS.items():
            for start in starts:
                slots = frozenset(range(start, start + SIZES[name]))
                if not slots & used and compute + PROFILES[name] <= 7 and (not names or names[-1] <= name):
                    grow(used | slots, (*names, name), compute + PROFILES[name])

    grow(frozenset(), (), 0)
    counts = [Counter(names) for names in found]
    return [each for each in counts if not any(each < other for other in counts)]


_MAXIMAL = _geometries()
_FRACTIONS = tuple(itertools.product((0.0, 0.25, 0.5, 0.75, 1.0), repeat=len(PROFILES)))


def _prices() -> list[tuple[tuple[float, ...], float]]:
    """Return prices of an instance-second by profile, and what a GPU-second is then worth at most."""
    out = []
    for fractions in _FRACTIONS:
        prices = tuple(f * PROFILES[name] for f, name in zip(fractions, PROFILES, strict=True))
        gains = [PROFILES[name] - price for name, price in zip(PROFILES, prices, strict=True)]
        worth = max(sum(each[name] * g for name, g in zip(PROFILES, gains, strict=True)) for each in _MAXIMAL)
        out.append((prices, worth))
    return out


_PRICED = _prices()


def _held(case: Case, work: Counter[str], seconds: float) -> float:
    """Return at most how much of some work the GPUs hold in so many seconds: the best of many dual prices."""
    amounts = tuple(work[name] for name in PROFILES)
    room = case.gpus * seconds
    return min(sum(p * a for p, a in zip(prices, amounts, strict=True)) + room * worth for prices, worth in _PRICED)
