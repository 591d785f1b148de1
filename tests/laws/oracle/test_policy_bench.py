"""The policy bench: the controller serves at most the optimum, which is at most the bound, and its figures come out."""

from __future__ import annotations

import itertools
from types import ModuleType
from typing import Any

import pytest

from support.selection import ROOT


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks import policy

    return policy


def test_served_is_at_most_the_optimum_which_is_at_most_the_bound(bench: ModuleType) -> None:
    served = 0.0
    for seed in range(12):
        case = bench.small(seed)
        best = bench.optimum(case)
        assert best <= bench.bound(case) + 1e-6
        for kind in bench.KINDS:
            outcome = bench.played(case, kind, best)
            assert outcome.served <= best + 1e-6, (case.name, kind)
            served += outcome.served
    assert served > 0


def test_the_optimum_is_that_of_queues_solved_by_hand(bench: ModuleType) -> None:
    from benchmarks.policy_cases import FIRST, Case, CaseJob

    hour = 3600.0

    def best(*jobs: CaseJob, gpus: int = 1, hours: float = 1) -> float:
        return float(bench.optimum(Case("by hand", (FIRST[:1] * gpus,), jobs, hours * hour)))

    whole, half, small = (CaseJob(0.0, profile, hour) for profile in ("7g.40gb", "3g.20gb", "1g.5gb"))
    assert best(whole, half) == 7 * hour, "one GPU has no room for both"
    assert best(whole, half, gpus=2) == 10 * hour
    assert best(whole, half, hours=2) == 10 * hour, "one after the other"
    assert best(half, half, small) == 6 * hour, "two halves take all memory slices"
    assert best(half, CaseJob(0.0, "4g.20gb", hour)) == 7 * hour
    assert best(CaseJob(1800.0, "7g.40gb", hour), half) == 3.5 * hour, "the longer wait for the larger job pays"


def test_no_set_of_instances_that_fits_is_worth_more_than_the_bound(bench: ModuleType) -> None:
    from benchmarks.policy_cases import FIRST, Case, CaseJob

    for names in itertools.combinations_with_replacement(("1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"), 3):
        case = Case("", (FIRST[:1],), tuple(CaseJob(0.0, name, 600.0) for name in names), 600.0)
        best = bench.optimum(case)
        assert best <= bench.bound(case) + 1e-6


def test_the_figures_of_a_short_run(bench: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "QUICK", (4, 1, 0))
    figures: list[Any] = []
    bench.run(figures.append, quick=True)
    shown = {figure.name: figure for figure in figures}
    array = next(figure for name, figure in shown.items() if name.startswith("dynamic nodes: an array of 16"))
    assert int(array.value.split()[0]) >= 2
    starved = next(
        figure
        for name, figure in shown.items()
        if name == "dynamic nodes: 1 large cases: starved tasks of the highest priority"
    )
    assert starved.value == "0"
