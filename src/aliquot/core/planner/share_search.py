"""Distribution of a request over several GPUs so that the sum of their costs is least.

The search is A*: GPU by GPU, the most promising share first. Prices of the kinds (``share_prices``) move costs from the
shares to the request, which changes no comparison. Then the lower bound of the remaining cost is exact for each kind
on its own, and for each weighted sum of the request, such as its compute slices. So the first result has the least
cost, and a second walk within that cost finds the first among equals.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from heapq import heappop, heappush
from operator import mul
from typing import Generic, TypeVar

from aliquot.core.planner.placement_search import Cost
from aliquot.core.planner.share_prices import Column, kind_prices

Share = tuple[int, ...]
"""How many of each requested kind one GPU takes."""
_WIDTH = 3
"""How many rests per GPU the search for a first distribution follows."""
_Choice = TypeVar("_Choice")
_Step = tuple[int, int, Share]
"""A packed share, its cost less the prices, and the share."""
_Tail = list[tuple[int, dict[int, int]]]
"""For each field of a packed rest: where it starts, and the least cost of the GPUs that take as much."""


def cheapest_shares(
    options: Sequence[Mapping[Share, tuple[Cost, _Choice]]], need: Share, weights: Sequence[Share]
) -> list[_Choice] | None:
    """Return one choice per GPU that together take exactly ``need`` at the least cost. None if there are no such
    choices.

    Among equals the first GPUs take the most, of the widest kind first. No share has more of a kind than ``need``. Each
    of ``weights`` has a number per kind, the size of one.
    """
    return ShareSearch(options, need, weights).find() if all(options) else None


class ShareSearch(Generic[_Choice]):
    """A single search.

    The rest of the request is packed into one number with a field for each weighted sum and for each kind, the widest
    kind on top. So numbers compare as shares do. The top bit of a field stays set while the rest of the field is at
    least 0.
    """

    def __init__(
        self, options: Sequence[Mapping[Share, tuple[Cost, _Choice]]], need: Share, weights: Sequence[Share]
    ) -> None:
        self.options = options
        self.expanded = 0
        """States from which the search went on: a measure of its work."""
        self._weights = weights
        self._kinds = sorted(range(len(need)), key=lambda k: (sum(each[k] for each in weights), k))
        totals = [sum(map(mul, need, each)) for each in weights]
        self._width = max([*need, *totals], default=0).bit_length() + 1
        fields = range(len(weights) + len(need))
        self._guard = sum(1 << ((n + 1) * self._width - 1) for n in fields)
        self._need = self._guard + self._packed(need)
        columns = _columns(options)
        self._limit = 1 + sum(max(cost for cost, _ in each) for each in columns)
        alike = [(columns.count(each), columns.index(each)) for each in columns]
        self._order = sorted(range(len(columns)), key=alike.__getitem__)
        """GPUs that are alike are searched one after the other, the most of them last."""
        self._use_best_prices([columns[n] for n in self._order], need)
        self._failed: list[dict[int, int]] = [{} for _ in columns]

    def find(self) -> list[_Choice] | None:
        self._narrow()
        cost = self._least_cost()
        if self._order != sorted(self._order):
            steps = dict(zip(self._order, self._steps_of, strict=True))
            self._arrange([steps[n] for n in sorted(steps)])
        found = None if cost is None else self._first_within(cost, 0, self._need, 0)
        return None if found is None else [each[share][1] for each, share in zip(self.options, found, strict=True)]

    def _use_best_prices(self, columns: Sequence[Sequence[Column]], need: Share) -> None:
        """Choose the prices with the highest lower bound: none, or those of the linear relaxation."""
        groups = [(columns.count(each), each) for n, each in enumerate(columns) if each not in columns[:n]]
        best = None
        for prices in ([0] * len(need), kind_prices(groups, need, self._limit)):
            steps = [self._steps(each, prices) for each in columns]
            tails = self._tails(steps)
            least = _least(tails[0], self._need, self._width)
            paid = sum(map(mul, prices, need))
            bound = self._limit if least is None else least + paid
            if best is None or bound > best:
                best, self._paid = bound, paid
                self._arrange(steps, tails)

    def _arrange(self, steps: list[list[_Step]], tails: list[_Tail] | None = None) -> None:
        """Set the shares of each GPU in the order of the search."""
        self._steps_of, self._tails_of = steps, tails or self._tails(steps)
        self._least_known: list[dict[int, int | None]] = [{} for _ in self._tails_of]
        self._alike_from = next((n for n, each in enumerate(steps) if steps[n:].count(each) == len(steps) - n), 0)

    def _steps(self, columns: Sequence[Column], prices: Sequence[int]) -> list[_Step]:
        steps = ((self._packed(share), cost - sum(map(mul, prices, share)), share) for cost, share in columns)
        return sorted(steps, reverse=True)

    def _tails(self, steps: Sequence[Sequence[_Step]]) -> list[_Tail]:
        """Return, for each number of GPUs that have their share, the least cost of the others by each weighted sum."""
        mask = (1 << (self._width - 1)) - 1
        shifts = [n * self._width for n in range(len(self._weights) + len(self._kinds))]
        tails: list[_Tail] = [[(shift, {0: 0}) for shift in shifts]]
        for each in reversed(steps):
            tail: _Tail = []
            for shift, after in tails[-1]:
                least: dict[int, int] = {}
                for packed, cost, _ in each:
                    weight = packed >> shift & mask
                    if cost < least.get(weight, cost + 1):
                        least[weight] = cost
                grown: dict[int, int] = {}
                for weight, cost in least.items():
                    for rest, more in after.items():
                        if cost + more < grown.get(rest + weight, cost + more + 1):
                            grown[rest + weight] = cost + more
                tail.append((shift, grown))
            tails.append(tail)
        return tails[::-1]

    def _narrow(self) -> None:
        """Find a cheap distribution, and drop the shares that only occur in more expensive ones."""
        reached = {self._need: 0}
        for n in range(len(self._steps_of)):
            found: dict[int, tuple[int, int]] = {}
            for rest, spent in reached.items():
                for left, total, bound, _ in self._next(n, rest, spent):
                    found[left] = min((bound, total), found.get(left, (bound, total)))
            best = sorted(found, key=lambda left: (found[left], left))[:_WIDTH]
            reached = {left: found[left][1] for left in best}
        if reached:
            highest = min(reached.values())
            lowest = [min(cost for _, cost, _ in each) for each in self._steps_of]
            most = highest - sum(lowest)
            pairs = zip(self._steps_of, lowest, strict=True)
            self._steps_of = [[step for step in each if step[1] - low <= most] for each, low in pairs]
            self._limit = highest + self._paid + 1

    def _least_cost(self) -> int | None:
        """Return the cost of the cheapest distribution, less the prices."""
        gpus = len(self._steps_of)
        spent: list[dict[int, int]] = [{self._need: 0}, *({} for _ in range(gpus))]
        closed: list[set[int]] = [set() for _ in spent]
        frontier = [(0, gpus, self._need)]
        while frontier:
            least, todo, rest = heappop(frontier)
            if not todo:
                return least
            n = gpus - todo
            if rest in closed[n]:
                continue
            closed[n].add(rest)
            after = spent[n + 1]
            for left, total, bound, _ in self._next(n, rest, spent[n][rest]):
                if total < after.get(left, total + 1):
                    after[left] = total
                    heappush(frontier, (bound, todo - 1, left))
        return None

    def _first_within(self, cost: int, n: int, rest: int, spent: int) -> list[Share] | None:
        """Return the distribution of the rest within a cost in which the first GPUs take the most."""
        if n == len(self._steps_of):
            return []
        if spent >= self._failed[n].get(rest, spent + 1):
            return None
        for left, total, bound, share in self._next(n, rest, spent):
            if bound <= cost:
                others = self._first_within(cost, n + 1, left, total)
                if others is not None:
                    return [share, *others]
        self._failed[n][rest] = spent
        return None

    def _next(self, n: int, rest: int, spent: int) -> Iterator[tuple[int, int, int, Share]]:
        """Yield what the next GPU can take, most first: the rest, the cost until then, its lower bound, the share."""
        self.expanded += 1
        guard, known, tail = self._guard, self._least_known[n + 1], self._tails_of[n + 1]
        highest, lowest = self._limit - self._paid, self._lowest(n, rest)
        for packed, cost, share in self._steps_of[n]:
            if packed < lowest:
                break
            left = rest - packed
            if left & guard != guard:
                continue
            if left not in known:
                known[left] = _least(tail, left, self._width)
            least = known[left]
            if least is not None and spent + cost + least < highest:
                yield left, spent + cost, spent + cost + least, share

    def _lowest(self, n: int, rest: int) -> int:
        """Return the lowest packed share that the next GPU may take.

        If the remaining GPUs are alike, the first of them takes the most, so at least the mean of the widest kind.
        """
        count = rest & ~self._guard
        field = max(count.bit_length() - 1, 0) // self._width
        if n < self._alike_from or field < len(self._weights):
            return 0
        shift = field * self._width
        return -(-(count >> shift) // (len(self._steps_of) - n)) << shift

    def _packed(self, share: Share) -> int:
        fields = [sum(map(mul, share, each)) for each in self._weights] + [share[k] for k in self._kinds]
        return sum(each << (n * self._width) for n, each in enumerate(fields))


def _least(tail: _Tail, rest: int, width: int) -> int | None:
    """Return the least cost of a packed rest. None if the GPUs of the tail cannot take it."""
    mask = (1 << (width - 1)) - 1
    highest = None
    for shift, costs in tail:
        least = costs.get(rest >> shift & mask)
        if least is None:
            return None
        if highest is None or least > highest:
            highest = least
    return highest


def _columns(options: Sequence[Mapping[Share, tuple[Cost, object]]]) -> list[list[Column]]:
    """Return the costs and shares of each GPU. A cost is one number that adds and compares as the costs do."""
    ranges = [
        [(min(part), max(part)) for part in zip(*(cost for cost, _ in each.values()), strict=True)] for each in options
    ]
    scales = [1]
    for part in reversed(list(zip(*ranges, strict=True))):
        scales.append(scales[-1] * (1 + sum(high - low for low, high in part)))
    factors = scales[-2::-1]
    return [
        [
            (sum((value - low) * f for value, (low, _), f in zip(cost, extent, factors, strict=True)), share)
            for share, (cost, _) in each.items()
        ]
        for each, extent in zip(options, ranges, strict=True)
    ]
