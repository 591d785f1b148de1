"""The distribution of shares over several GPUs, against every distribution: least cost, and the first among equals.

The costs of shares, against the search for one end state.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import product

import msgspec
import pytest

from aliquot.core.model import catalog
from aliquot.core.model.inventory import Mig
from aliquot.core.planner.change_distribution import ChangeCandidate, WholeChange, change_options, change_weights
from aliquot.core.planner.geometry_change import change_gpu
from aliquot.core.planner.placement_search import Cost
from aliquot.core.planner.placement_table import compiled_table
from aliquot.core.planner.share_search import Share, ShareSearch, cheapest_shares
from laws.oracle import mig_nodes, raw
from support.selection import dice as dice_of
from support.selection import samples

WEIGHTS = ((1, 2), (1, 4))
"""Compute slices and memory slices of two kinds; the second one is wider."""
Options = dict[Share, Cost]


def options_of(dice: random.Random, need: Share) -> Options:
    """Return shares with few different costs, so that many distributions are equal. Nothing can always be taken."""
    every = product(*(range(min(n, 2) + 1) for n in need))
    shares = [share for share in every if not any(share) or dice.random() < 0.7]
    return {share: (dice.randint(0, 1), dice.randint(-1, 1), dice.randint(0, 1)) for share in shares}


def brute_force(options: Sequence[Options], need: Share) -> list[Share] | None:
    """Return the cheapest distribution in which the first GPUs take the most, of the second kind first."""
    every = [list(each) for each in product(*options) if tuple(map(sum, zip(*each, strict=True))) == need]

    def order(shares: list[Share]) -> tuple[Cost, list[Share]]:
        costs = (each[share] for each, share in zip(options, shares, strict=True))
        return tuple(map(sum, zip(*costs, strict=True))), [(-second, -first) for first, second in shares]

    return min(every, key=order, default=None)


@pytest.mark.parametrize("kinds_of_gpus", [1, 2, 4])
def test_the_cheapest_and_the_first_among_equals(kinds_of_gpus: int) -> None:
    dice = dice_of(f"shares of {kinds_of_gpus}")
    found = 0
    for _ in range(samples(150)):
        need = dice.randint(0, 6), dice.randint(0, 5)
        kinds = [options_of(dice, need) for _ in range(kinds_of_gpus)]
        options = [*kinds, *(dice.choice(kinds) for _ in range(4 - kinds_of_gpus))]
        expected = brute_force(options, need)
        choices = [{share: (cost, share) for share, cost in each.items()} for each in options]
        assert cheapest_shares(choices, need, WEIGHTS) == expected, (options, need)
        found += expected is not None
    assert found


def test_alike_gpus_are_not_searched_in_every_order() -> None:
    shares = [share for share in product(range(4), repeat=3) if sum(share) <= 4]
    expanded = 0
    for seed in range(10):
        dice = random.Random(seed)
        options = {share: ((bool(any(share)), dice.randint(0, 9)), share) for share in shares}
        search = ShareSearch([options] * 8, (9, 8, 7), ((1, 1, 1), (1, 2, 3)))
        found = search.find()
        assert found is not None
        assert tuple(map(sum, zip(*found, strict=True))) == (9, 8, 7)
        assert found == sorted(found, key=lambda share: share[::-1], reverse=True)
        expanded += search.expanded
    assert expanded <= 800  # 1,246 if each order of their shares counts


def test_six_kinds_over_eight_gpus_in_different_states() -> None:
    family = "h100-80gb-sxm"
    table, expanded = catalog.family(family), 0
    for seed in range(10):
        dice = random.Random(seed)
        names = dice.sample([p.name for p in table.profiles], 6)
        kinds = tuple(mig_nodes.desired_state(table, names).gpus[0].instances or ())
        gpus = [mig_nodes.gpu(table, dice.choice(raw.states(family)), pci=f"0000:{n:02x}:00.0") for n in range(8)]
        candidates = [ChangeCandidate(gpu, compiled_table(table), kinds) for gpu in gpus]
        geometries = [dict(g) for g in raw.by_geometry(family) if {name for name, _ in g} <= set(names)]
        drawn = dice.choices(geometries, k=8)
        need = tuple(sum(each.get(name, 0) for each in drawn) for name in names)
        search = ShareSearch(change_options(candidates, need, (), replacing=True), need, change_weights(candidates, ()))
        assert search.find() is not None
        expanded += search.expanded
    assert expanded <= 700


@pytest.mark.parametrize("family", ["a30-24gb", "h100-80gb-sxm", "rtx-pro-6000-96gb"])
def test_what_a_change_of_whole_instances_costs(family: str) -> None:
    dice, table = dice_of(f"{family} costs"), catalog.family(family)
    kinds = mig_nodes.desired_state(table, [p.name for p in table.profiles]).gpus[0].instances or ()
    possible = 0
    for _ in range(samples(150)):
        now = sorted(dice.choice(raw.states(family)))
        gpu = mig_nodes.gpu(table, now, [place for place in now if dice.random() < 0.3])
        mig = Mig(True, "disabled", "disabled") if not now and dice.random() < 0.2 else gpu.mig
        gpu = msgspec.structs.replace(gpu, holders=(mig_nodes.PROCESS,) * (dice.random() < 0.2), mig=mig)
        picked = dice.sample(kinds, 4)
        candidate = ChangeCandidate(gpu, compiled_table(table), tuple(picked[:2]), tuple(picked[2:]))
        assert WholeChange.is_possible(candidate)
        added, removed = (dice.randint(0, 2), dice.randint(0, 2)), (dice.randint(0, 1), dice.randint(0, 1))
        for replacing in (False, True):
            fewer = (0, 0) if replacing else removed
            more = [kind for kind, n in zip(picked, (*added, *fewer), strict=True) for _ in range(n)]
            add, remove = more[: sum(added)], more[sum(added) :]
            found = change_gpu(candidate.table, gpu, add, remove, replacing=replacing)
            cost = WholeChange(candidate, replacing).cost(added, fewer)
            assert cost == (None if found is None else found.cost), (now, added, fewer, replacing)
            possible += cost is not None
    assert possible
