"""The distribution of shares over several GPUs, against every distribution: least cost, and the first among equals."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import product

import pytest

from aliquot.core.planner.placement_search import Cost
from aliquot.core.planner.share_search import Share, ShareSearch, cheapest_shares
from support.selection import dice as dice_of
from support.selection import samples

WEIGHTS = ((1, 2), (1, 4), (1, 1))
"""Compute slices, memory slices and instances of two kinds; the second one is wider."""
Options = dict[Share, Cost]


def options_of(dice: random.Random) -> Options:
    """Return shares with few different costs, so that many distributions are equal. Nothing can always be taken."""
    shares = [share for share in product(range(3), range(3)) if not any(share) or dice.random() < 0.7]
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
        kinds = [options_of(dice) for _ in range(kinds_of_gpus)]
        options = [*kinds, *(dice.choice(kinds) for _ in range(4 - kinds_of_gpus))]
        need = dice.randint(0, 6), dice.randint(0, 5)
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
    assert expanded <= 900  # 1,800 if each order of their shares counts
