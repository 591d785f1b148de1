"""Prices of the requested kinds, from the linear relaxation of their distribution over GPUs.

If GPUs could take fractions of shares, the least cost would come with a price of each kind. A cost less the prices of
what is taken shows how much worse a share is than the best. Any prices give a valid lower bound; these give a close
one. So the simplex method may calculate with floats, and may stop early.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import mul

Column = tuple[int, tuple[int, ...]]
"""A cost and a share."""
_STEPS = 400
"""The method stops after so many steps. It needs about 60 for eight GPUs and six kinds."""
_EXACT = 0.5
"""Costs are integers, so smaller improvements are noise."""


def kind_prices(groups: Sequence[tuple[int, Sequence[Column]]], need: Sequence[int], limit: int) -> list[int]:
    """Return the price of one instance of each kind.

    Each group is a number of GPUs and the shares that each of them can take, the empty share first. ``limit`` is more
    than any distribution costs. If none exists, the prices make the bound exceed it in most cases.
    """
    return _Simplex(groups, need, limit).prices()


class _Simplex:
    """The revised simplex method. Rows are the kinds, then the groups.

    It starts with empty shares. What is missing of the request costs more than any distribution.
    """

    def __init__(self, groups: Sequence[tuple[int, Sequence[Column]]], need: Sequence[int], limit: int) -> None:
        self.kinds = len(need)
        self.columns = [shares for _, shares in groups]
        size = self.kinds + len(groups)
        self.inverse = [[float(row == column) for column in range(size)] for row in range(size)]
        self.values = [float(each) for each in (*need, *(count for count, _ in groups))]
        self.duals = [limit * 16.0] * self.kinds + [float(shares[0][0]) for shares in self.columns]

    def prices(self) -> list[int]:
        idle = group = 0
        for _ in range(_STEPS):
            gain, share = self._best(group)
            if gain < -_EXACT:
                self._enter(gain, share, group)
                idle = 0
            else:
                idle, group = idle + 1, (group + 1) % len(self.columns)
            if idle == len(self.columns):
                break
        return [round(each) for each in self.duals[: self.kinds]]

    def _best(self, group: int) -> tuple[float, tuple[int, ...]]:
        """Return the share of a group that reduces the cost the most, and by how much per unit."""
        prices, base = self.duals[: self.kinds], self.duals[self.kinds + group]
        return min((cost - base - sum(map(mul, prices, share)), share) for cost, share in self.columns[group])

    def _enter(self, gain: float, share: tuple[int, ...], group: int) -> None:
        """Take as much of the share as possible."""
        at = self.kinds + group
        change = [sum(map(mul, row, share)) + row[at] for row in self.inverse]
        ratios = [
            (value / each, -each, n)
            for n, (value, each) in enumerate(zip(self.values, change, strict=True))
            if each > 1e-7
        ]
        if not ratios:
            return
        step, _, leaving = min(ratios)
        pivot = change[leaving]
        row = [each / pivot for each in self.inverse[leaving]]
        self.duals = [dual + gain * each for dual, each in zip(self.duals, row, strict=True)]
        for n, factor in enumerate(change):
            if n != leaving and factor:
                self.inverse[n] = [a - factor * b for a, b in zip(self.inverse[n], row, strict=True)]
                self.values[n] = max(0.0, self.values[n] - factor * step)
        self.inverse[leaving], self.values[leaving] = row, step
