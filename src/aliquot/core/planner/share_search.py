"""Distribution of a request over several GPUs so that the sum of their costs is least.

The search is A*: GPU by GPU, the most promising share first. The lower bound of the remaining cost is exact for each
weighted sum over the request, such as its compute slices. So the first result is the best one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from heapq import heappop, heappush
from typing import Generic, TypeVar

from aliquot.core.planner.placement_search import Cost

Share = tuple[int, ...]
"""How many of each requested kind one GPU takes."""
_Choice = TypeVar("_Choice")
_FIELD = 1 << 16
"""Larger than any number in a cost, summed over the GPUs of a node."""


def cheapest_shares(
    options: Sequence[Mapping[Share, tuple[Cost, _Choice]]], need: Share, weights: Sequence[Share]
) -> list[_Choice] | None:
    """Return one choice per GPU that together take exactly ``need`` at the least cost. None if there are no such
    choices.

    Among equals the first GPUs take the most. Each of ``weights`` has a number per kind, the size of one.
    """
    return _ShareSearch(options, need, weights).find()


class _ShareSearch(Generic[_Choice]):
    """A single search.

    The rest of the request is packed into one number with a field for each kind. The top bit of a field stays set while
    the rest of the field is at least 0.
    """

    def __init__(
        self, options: Sequence[Mapping[Share, tuple[Cost, _Choice]]], need: Share, weights: Sequence[Share]
    ) -> None:
        self.options = options
        self.weights = weights
        self.width = max(need, default=0).bit_length() + 1
        self.guard = self._packed([1 << (self.width - 1)] * len(need))
        self.need = self.guard + self._packed(need)
        self.steps = [
            [(self._packed(share), _scalar(cost), share) for share, (cost, _) in each.items()] for each in options
        ]
        self.bounds = [self._least_rests(each) for each in weights]
        self.rests: list[dict[int, int | None]] = [{} for _ in range(len(options) + 1)]

    def find(self) -> list[_Choice] | None:
        gpus, guard = len(self.steps), self.guard
        spent: list[dict[int, int]] = [{self.need: 0}, *({} for _ in self.steps)]
        taken: list[dict[int, tuple[int, Share]]] = [{} for _ in spent]
        closed: list[set[int]] = [set() for _ in spent]
        frontier = [(0, gpus, self.need)]
        while frontier:
            _, todo, rest = heappop(frontier)
            n = gpus - todo
            if not todo:
                return self._choices(taken, rest)
            if rest in closed[n]:
                continue
            closed[n].add(rest)
            before, after, reached = spent[n][rest], spent[n + 1], taken[n + 1]
            for packed, cost, share in self.steps[n]:
                left, total = rest - packed, before + cost
                if left & guard != guard or total >= after.get(left, total + 1):
                    continue
                least = self._least(n + 1, left)
                if least is not None:
                    after[left], reached[left] = total, (rest, share)
                    heappush(frontier, (total + least, todo - 1, left))
        return None

    def _choices(self, taken: Sequence[Mapping[int, tuple[int, Share]]], rest: int) -> list[_Choice]:
        found: list[_Choice] = []
        for n in range(len(self.options), 0, -1):
            rest, share = taken[n][rest]
            found.append(self.options[n - 1][share][1])
        return found[::-1]

    def _least(self, n: int, rest: int) -> int | None:
        """Return the least cost of the rest after ``n`` GPUs have their share. None if the others cannot take it."""
        known = self.rests[n]
        if rest not in known:
            mask = (1 << (self.width - 1)) - 1
            share = [rest >> (k * self.width) & mask for k in range(len(self.weights[0]))]
            least = [bound[n].get(_weighed(share, each)) for bound, each in zip(self.bounds, self.weights, strict=True)]
            possible = None not in least and (n < len(self.steps) or not any(share))
            known[rest] = max(each for each in least if each is not None) if possible else None
        return known[rest]

    def _least_rests(self, weights: Share) -> list[dict[int, int]]:
        """Return, for each number of GPUs that have their share, the least cost of the others by the remaining weighted
        sum.
        """
        rests: list[dict[int, int]] = [{0: 0}]
        for each in reversed(self.steps):
            least: dict[int, int] = {}
            for _, cost, share in each:
                weight = _weighed(share, weights)
                least[weight] = min(cost, least.get(weight, cost))
            grown: dict[int, int] = {}
            for weight, cost in least.items():
                for rest, more in rests[-1].items():
                    grown[rest + weight] = min(cost + more, grown.get(rest + weight, cost + more))
            rests.append(grown)
        return rests[::-1]

    def _packed(self, share: Sequence[int]) -> int:
        return sum(each << (k * self.width) for k, each in enumerate(share))


def _weighed(share: Sequence[int], weights: Share) -> int:
    return sum(map(int.__mul__, share, weights))


def _scalar(cost: Cost) -> int:
    """Pack a cost into one number that adds and compares as the cost does."""
    return reduce(lambda whole, each: whole * _FIELD + each, cost, 0)
