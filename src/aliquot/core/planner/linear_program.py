"""Multipliers of a linear program, by the simplex method.

The program takes ``count`` columns of each class, or fractions of them, so that they add up to the needs at the least
cost. The multiplier of a row is what one more unit of its need costs. Any multipliers of at least 0 give a true bound,
so only the work of the search that uses them depends on their precision.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import mul

import msgspec

Vector = tuple[int, ...]
"""A number per row."""
_PENALTY = 1e4
"""The cost of a unit that is missing, above any cost of a column."""
_TOLERANCE = 1e-7
_PIVOTS = 400


class ColumnClass(msgspec.Struct, frozen=True):
    """Columns of which ``count`` are taken."""

    count: int
    columns: Sequence[Vector]
    costs: Sequence[int]
    first: int = 0
    """The column to begin with. The better it is, the less work there is."""


class Optimum(msgspec.Struct, frozen=True):
    """The least cost of a program."""

    multipliers: list[float]
    """What one more unit of each row's need costs."""
    taken: frozenset[tuple[int, int]]
    """The classes and columns of which it takes a part."""


def _dot(left: Sequence[float], right: Sequence[float]) -> float:
    total: float = sum(map(mul, left, right))
    return total


def solve(classes: Sequence[ColumnClass], needs: Vector, growth: Vector | None = None) -> Optimum:
    """Return the optimum of a program.

    With ``growth``, the program asks how many times these needs can be added to ``needs``. The multipliers then tell
    which rows are the narrowest.
    """
    return _Simplex(classes, needs, growth).solve() if needs else Optimum([], frozenset())


class _Simplex:
    """The revised method: the inverse of the basis, with a row for each need and one for each class."""

    def __init__(self, classes: Sequence[ColumnClass], needs: Vector, growth: Vector | None) -> None:
        self.classes = classes
        self.rows = len(needs)
        self.growth = growth
        self.turn = 0
        self.inverse: list[list[float]] = []
        self.values: list[float] = []
        self.costs: list[float] = []
        self.basis: list[tuple[int, int] | None] = []
        for row, need in enumerate(needs):
            # At first each class takes its first column only. A row has a surplus, or it lacks units at a penalty.
            spare = sum(each.count * each.columns[each.first][row] for each in classes) - need
            sign = -1.0 if spare >= 0 else 1.0
            own = [sign if n == row else 0.0 for n in range(self.rows)]
            self.inverse.append([*own, *(-sign * each.columns[each.first][row] for each in classes)])
            self.values.append(abs(spare))
            self.costs.append(0.0 if spare >= 0 else _PENALTY)
            self.basis.append(None)
        for n, each in enumerate(classes):
            self.inverse.append([0.0] * self.rows + [float(n == k) for k in range(len(classes))])
            self.values.append(each.count)
            self.costs.append(each.costs[each.first])
            self.basis.append((n, each.first))

    def solve(self) -> Optimum:
        for _ in range(_PIVOTS):
            prices = self._prices()
            entering = self._entering(prices)
            if entering is None or not self._pivot(*entering):
                break
        pairs = zip(self.basis, self.values, strict=True)
        taken = frozenset(column for column, value in pairs if column is not None and value > _TOLERANCE)
        return Optimum(self._prices()[: self.rows], taken)

    def _prices(self) -> list[float]:
        total = [0.0] * len(self.inverse)
        for cost, row in zip(self.costs, self.inverse, strict=True):
            if cost:
                total = [a + cost * b for a, b in zip(total, row, strict=True)]
        return total

    def _entering(self, prices: Sequence[float]) -> tuple[list[float], float, tuple[int, int] | None] | None:
        """Return a column that lowers the cost: its direction, cost, and class. None at the optimum."""
        rest = [0.0] * len(self.classes)
        if self.growth is not None and _dot(prices, self.growth) < 1 - _TOLERANCE:
            return self._direction([-float(n) for n in self.growth] + rest), -1.0, None
        least = min(range(self.rows), key=prices.__getitem__)
        if prices[least] < -_TOLERANCE:
            return [-row[least] for row in self.inverse], 0.0, None
        for k in range(len(self.classes)):
            # One class after the other, because most pivots need only one.
            n = (self.turn + k) % len(self.classes)
            each = self.classes[n]
            found = min(
                (cost - _dot(prices, column), j)
                for j, (cost, column) in enumerate(zip(each.costs, each.columns, strict=True))
            )
            if found[0] < prices[self.rows + n] - _TOLERANCE:
                self.turn = n
                rest[n] = 1.0
                return self._direction([*each.columns[found[1]], *rest]), each.costs[found[1]], (n, found[1])
        return None

    def _direction(self, column: Sequence[float]) -> list[float]:
        return [_dot(column, row) for row in self.inverse]

    def _pivot(self, direction: Sequence[float], cost: float, column: tuple[int, int] | None) -> bool:
        """Replace a column of the basis by one with this direction. Returns False if no limit would apply."""
        steep = [(self.values[n] / x, -x, n) for n, x in enumerate(direction) if x > _TOLERANCE]
        if not steep:
            return False
        length, slope, leaving = min(steep)
        pivot = [x / -slope for x in self.inverse[leaving]]
        for n, x in enumerate(direction):
            if x and n != leaving:
                self.inverse[n] = [a - x * b for a, b in zip(self.inverse[n], pivot, strict=True)]
                self.values[n] = max(0.0, self.values[n] - x * length)
        self.inverse[leaving], self.values[leaving] = pivot, length
        self.costs[leaving], self.basis[leaving] = cost, column
        return True
