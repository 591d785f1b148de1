"""Search for how many GPUs of each class take which option, to offer a need together at the least cost.

GPUs of equal options are one class, so the search is over counts, not over GPUs. The costs are settled one after the
other, the most important first. What is settled becomes a row like the needs: the options may not exceed it.

Each row has a weight, from the linear program of the same rows. No choice of options has a larger weighted sum than the
sum of each GPU's largest. This bound leaves few choices, which a depth-first search goes through.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain
from operator import ge, mul, sub

import msgspec

from aliquot.core.planner.linear_program import ColumnClass, Optimum, Vector, solve

Option = tuple[Vector, Vector]
"""What a GPU offers (a count per kind), and its costs, the most important first."""
_SCALE = 1 << 16
"""Weights are integers, so that sums are exact."""
_CUTS = 12
"""How many of the known bounds a search checks, the tightest ones."""
STEPS = 20_000
"""The most steps of one search. One that needs more counts as without a result."""


class GpuClass(msgspec.Struct, frozen=True):
    """GPUs of equal options, of which the first is the present state."""

    count: int
    options: tuple[Option, ...]


class _Group(msgspec.Struct, frozen=True):
    """The options of a class that are left, each as a column with a number per row."""

    count: int
    columns: tuple[Vector, ...]
    options: tuple[int, ...]
    """Their numbers in the class."""


class CountSearch:
    """Classes of GPUs prepared for several needs.

    ``most`` limits what they offer of a kind together. The present state keeps these limits.
    """

    def __init__(self, classes: Sequence[GpuClass], most: Sequence[int | None]) -> None:
        self.steps = 0
        self._classes = classes
        self._kinds = len(most)
        self._limited = [k for k, limit in enumerate(most) if limit is not None]
        self._limits = tuple(-limit for limit in most if limit is not None)
        self._groups = [
            _Group(
                each.count,
                tuple((*offer, *(-offer[k] for k in self._limited)) for offer, _ in each.options),
                tuple(range(len(each.options))),
            )
            for each in classes
        ]
        # What fits does not depend on costs, so classes whose largest offers are equal are one.
        counts: dict[tuple[Vector, ...], int] = {}
        self._largest = [_largest(group.columns) for group in self._groups]
        for group, columns in zip(self._groups, self._largest, strict=True):
            counts[columns] = counts.get(columns, 0) + group.count
        self._merged = [_Group(count, columns, ()) for columns, count in counts.items()]
        self._cuts: dict[Vector, int] = {}
        self._examples: list[tuple[Vector, list[list[int]]]] = [(self._offered(self._groups, self._present()), [])]
        self._known: dict[Vector, bool] = {}
        rows = self._kinds + len(self._limited)
        for k in range(self._kinds):
            self._add_cut(tuple(int(row == k) for row in range(rows)))

    def fits(self, need: Vector) -> bool:
        """Report whether the GPUs can offer this much together."""
        if need not in self._known:
            self._known[need] = self._example(need) is not None
        return self._known[need]

    def cheapest(self, need: Vector) -> list[list[int]]:
        """Return the options of each class that offer a need that fits at the least cost, one for each GPU."""
        found, groups, rows = self._start(need), self._groups, (*need, *self._limits)
        cuts = self._tightest(rows)
        for digit in range(len(self._classes[0].options[0][1]) if self._classes else 0):
            costs = [
                [own.options[j][1][digit] for j in group.options]
                for own, group in zip(self._classes, groups, strict=True)
            ]
            costs = [[cost - min(each) for cost in each] for each in costs]
            if _total(costs, found):
                found, weights = self._cheaper(groups, rows, costs, cuts, found)
                # Any weights are a bound. Those of a settled cost are a tight one for all that follow.
                cuts.insert(0, weights)
            groups, rows, found = _settled(groups, rows, costs, found)
        return [[group.options[j] for j in each] for group, each in zip(groups, found, strict=True)]

    def _present(self) -> list[list[int]]:
        return [[0] * group.count for group in self._groups]

    def _offered(self, groups: Sequence[_Group], found: Sequence[Sequence[int]]) -> Vector:
        columns = [group.columns[j] for group, each in zip(groups, found, strict=True) for j in each]
        return tuple(sum(column[k] for column in columns) for k in range(self._kinds))

    def _example(self, need: Vector) -> list[list[int]] | None:
        """Return columns of the merged classes that offer the need, or none at all if the present state does.

        None if the need does not fit.
        """
        for offered, example in self._examples:
            if all(map(ge, offered, need)):
                return example
        rows = (*need, *self._limits)
        if any(weigh(cut, rows) > total for cut, total in self._cuts.items()):
            return None
        classes = [ColumnClass(g.count, g.columns, [0] * len(g.columns)) for g in self._merged]
        # A limit would be the narrowest row at once, so only needs of the other kinds grow.
        fixed = tuple(n if k in self._limited else 0 for k, n in enumerate(need))
        optimum = solve(classes, fixed + self._limits, tuple(map(sub, need, fixed)) + (0,) * len(self._limits))
        weights = _scaled(optimum.multipliers)
        self._add_cut(weights)
        dive = _Dive(self._merged, [weights, *self._tightest(rows)], self._kinds, optimum)
        found = dive.run(rows)
        self.steps += dive.steps
        if found is not None:
            self._examples.append((self._offered(self._merged, found), found))
        return found

    def _add_cut(self, weights: Vector) -> None:
        """Remember weights, with the largest weighted sum of all GPUs together."""
        self._cuts[weights] = _largest_sum(self._merged, weights)

    def _tightest(self, rows: Vector) -> list[Vector]:
        """Return the weights whose bounds leave these rows the least room."""
        return sorted(self._cuts, key=lambda cut: 1 - weigh(cut, rows) / max(1, self._cuts[cut]))[:_CUTS]

    def _start(self, need: Vector) -> list[list[int]]:
        """Return options that offer the need, at any cost."""
        example = self._example(need)
        assert example is not None, "only what fits is asked for"
        if not example:
            return self._present()
        left = {
            group.columns: [group.columns[j] for j in each] for group, each in zip(self._merged, example, strict=True)
        }
        found: list[list[int]] = []
        for group, columns in zip(self._groups, self._largest, strict=True):
            taken = [left[columns].pop() for _ in range(group.count)]
            found.append([next(j for j, own in enumerate(group.columns) if all(map(ge, own, c))) for c in taken])
        return found

    def _cheaper(
        self,
        groups: Sequence[_Group],
        rows: Vector,
        costs: Sequence[Sequence[int]],
        cuts: Sequence[Vector],
        found: list[list[int]],
    ) -> tuple[list[list[int]], Vector]:
        """Return the options of the least cost, given some options, and the weights of its bound.

        The least cost of each class is 0.
        """
        start = [each[len(each) // 2] for each in found]
        optimum = solve(
            [ColumnClass(g.count, g.columns, own, j) for g, own, j in zip(groups, costs, start, strict=True)], rows
        )
        weights = (*_scaled(optimum.multipliers), _SCALE)
        priced = _priced(groups, costs)
        least = (weigh(weights, rows) - _largest_sum(priced, weights) + _SCALE - 1) // _SCALE
        dive = _Dive(priced, [weights, *cuts], self._kinds, optimum)
        for target in range(max(0, least), _total(costs, found)):
            better = dive.run((*rows, -target))
            if better is not None:
                found = better
                break
        self.steps += dive.steps
        return found, weights


class _Dive:
    """A depth-first search for options whose columns add up to at least some rows.

    The options of a class are taken in one order. So each set of them is seen once.
    """

    def __init__(self, groups: Sequence[_Group], cuts: Sequence[Vector], kinds: int, optimum: Optimum) -> None:
        parts = Counter(n for n, _ in optimum.taken)
        self.order = sorted(range(len(groups)), key=lambda n: parts[n])
        groups = [groups[n] for n in self.order]
        self.taken = frozenset((self.order.index(n), j) for n, j in optimum.taken)
        self.kinds = kinds
        self.guide = cuts[0]
        self.cuts = cuts
        self.steps = 0
        self.counts = [group.count for group in groups]
        common = sorted(range(kinds), key=lambda k: -max(column[k] for g in groups for column in g.columns))
        self.columns = [
            sorted(enumerate(group.columns), key=lambda c: ([-c[1][k] for k in common], -weigh(self.guide, c[1])))
            for group in groups
        ]
        self.weights = [[weigh(self.guide, column) for _, column in columns] for columns in self.columns]
        self.tops = [[self._tops(columns, cut) for cut in cuts] for columns in self.columns]
        self.after = [[0] * len(cuts)]
        for count, tops in zip(self.counts[::-1], self.tops[::-1], strict=True):
            self.after.append([a + count * top[0] for a, top in zip(self.after[-1], tops, strict=True)])
        self.after.reverse()
        self.failed: set[tuple[int, int, int, Vector]] = set()

    @staticmethod
    def _tops(columns: Sequence[tuple[int, Vector]], cut: Vector) -> list[int]:
        """Return the largest weighted sum of the columns from each place on."""
        tops = [weigh(cut, column) for _, column in columns]
        for n in range(len(tops) - 2, -1, -1):
            tops[n] = max(tops[n], tops[n + 1])
        return tops

    def run(self, rows: Vector) -> list[list[int]] | None:
        self.failed.clear()
        found = self._descend(-1, 0, 0, rows)
        if found is None:
            return None
        return [[j for g, j in found if g == self.order.index(n)] for n in range(len(self.counts))]

    def _descend(self, group: int, left: int, first: int, rest: Vector) -> list[tuple[int, int]] | None:
        """Return options for ``left`` GPUs of a group and all of the next ones, from the ``first`` option on."""
        if not left:
            group, first = group + 1, 0
            if group == len(self.counts):
                return None if max(rest, default=0) > 0 else []
            left = self.counts[group]
        key = (group, left, first, rest)
        if key in self.failed or self.steps >= STEPS:
            return None
        self.steps += 1
        if self._possible(group, left, first, rest):
            for *_, place, new in self._next(group, left, first, rest):
                found = self._descend(group, left - 1, place, new)
                if found is not None:
                    return [(group, self.columns[group][place][0]), *found]
        self.failed.add(key)
        return None

    def _possible(self, group: int, left: int, first: int, rest: Vector) -> bool:
        return all(
            weigh(cut, rest) <= after + left * tops[first]
            for cut, after, tops in zip(self.cuts, self.after[group + 1], self.tops[group], strict=True)
        )

    def _next(self, group: int, left: int, first: int, rest: Vector) -> list[tuple[bool, int, int, Vector]]:
        """Return the options that may come next with what they leave, the most useful first."""
        kinds, guide, after, tops = self.kinds, self.guide, self.after[group + 1][0], self.tops[group][0]
        whole, weights = weigh(guide, rest), self.weights[group]
        found = []
        for place in range(first, len(tops)):
            if whole - weights[place] > after + (left - 1) * tops[place]:
                continue
            number, column = self.columns[group][place]
            new = tuple(map(sub, rest, column))
            if max(new[kinds:], default=0) > 0:
                continue
            if min(new[:kinds], default=0) < 0:
                new = (*(n if n > 0 else 0 for n in new[:kinds]), *new[kinds:])
            weight = weigh(guide, new)
            if weight <= after + (left - 1) * tops[place]:
                found.append(((group, number) not in self.taken, weight, place, new))
        found.sort()
        return found


def weigh(weights: Vector, column: Vector) -> int:
    """Return a weighted sum. Rows without a weight do not count."""
    total: int = sum(map(mul, weights, column))
    return total


def _largest_sum(groups: Sequence[_Group], weights: Vector) -> int:
    return sum(group.count * max(weigh(weights, column) for column in group.columns) for group in groups)


def _largest(columns: Sequence[Vector]) -> tuple[Vector, ...]:
    """Return the columns that no other exceeds in all rows."""
    kept: list[Vector] = []
    for column in sorted(set(columns), key=lambda c: (-sum(c), c)):
        if not any(all(map(ge, other, column)) for other in kept):
            kept.append(column)
    return tuple(kept)


def _scaled(weights: Sequence[float]) -> Vector:
    return tuple(max(0, round(weight * _SCALE)) for weight in weights)


def _total(costs: Sequence[Sequence[int]], found: Sequence[Sequence[int]]) -> int:
    return sum(chain.from_iterable((cost[j] for j in each) for cost, each in zip(costs, found, strict=True)))


def _priced(groups: Sequence[_Group], costs: Sequence[Sequence[int]]) -> list[_Group]:
    """Add a row for the cost, which is limited."""
    return [
        _Group(g.count, tuple((*c, -cost) for c, cost in zip(g.columns, own, strict=True)), g.options)
        for g, own in zip(groups, costs, strict=True)
    ]


def _settled(
    groups: Sequence[_Group], rows: Vector, costs: Sequence[Sequence[int]], found: list[list[int]]
) -> tuple[list[_Group], Vector, list[list[int]]]:
    """Keep only options that cost no more than what is found, by a row or, if that is the least, one by one."""
    now = _total(costs, found)
    if now:
        return _priced(groups, costs), (*rows, -now), found
    left, places = [], []
    for group, own, each in zip(groups, costs, found, strict=True):
        free = [j for j, cost in enumerate(own) if not cost]
        left.append(_Group(group.count, tuple(group.columns[j] for j in free), tuple(group.options[j] for j in free)))
        places.append([free.index(j) for j in each])
    return left, rows, places
