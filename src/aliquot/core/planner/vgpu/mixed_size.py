"""Mixed-size mode: which vGPUs stay, and which places the new ones can come to.

The driver puts a vGPU at the first free place of its size. Places of one size never overlap, so a new vGPU depends only
on vGPUs to the left of it, and this holds: a set of places comes about exactly if no place of a size is left free to
the left of a new vGPU of that size, and then it comes about when the new ones are made from left to right. One walk
over the board from left to right, with the cheapest rest remembered for each state, is therefore a complete search.

A free place to the left is no loss: the vGPU of its size fits there, too, at no cost. The walk tries to make one before
it leaves a place free, so it must watch free places only for sizes of which a certain place was asked.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import NamedTuple

from aliquot.core.planner.vgpu.matching import Aim, Bucket, Here, Item, Partners
from aliquot.core.planner.vgpu.placement_policies import MixedRoom, Seat

Cost = tuple[int, int]
"""(held vGPUs destroyed, vGPUs destroyed)."""
_ENDLESS: Cost = (1 << 30, 1 << 30)


class _State(NamedTuple):
    """The walk at GiB ``at``: how many of each size are still to come, how many of each bucket with a surplus may still
    stay. Where a certain place was asked: free since ``free``, and the sizes of which a place was ``passed`` over.
    """

    at: int
    free: int
    passed: int
    left: tuple[int, ...]
    caps: tuple[int, ...]


class _Step(NamedTuple):
    """What happens at one GiB: a vGPU stays (``kept``), or one of a size is made (``made``), or neither."""

    state: _State
    lost: tuple[Here, ...]
    kept: Here | None = None
    made: int | None = None


def fill(room: MixedRoom, items: Sequence[Item], here: Sequence[Here]) -> Aim | None:
    """The end state that destroys the fewest vGPUs, held ones last. None if the items have no places whatever goes."""
    places = [i.wish.placement for i in items if i.wish.placement is not None]
    if len(set(places)) < len(places):
        return None
    walk = _Walk(room, items, _placed(room, here))
    if walk.cost(walk.start) == _ENDLESS:
        return None
    kept, doomed, made = walk.path()
    left = walk.partners.missing(kept)
    out: list[tuple[Item, int | None]] = []
    for kind, place in made:
        mine = [i for i in left if room.kind(i.type) == kind]
        item = next((i for i in mine if i.wish.placement == place), None)
        item = item or min((i for i in mine if i.wish.placement is None), key=_order)
        left.remove(item)
        out.append((item, place))
    original = {id(h.vgpu): h for h in here}
    return Aim(tuple(original[id(h.vgpu)] for h in kept), tuple(original[id(h.vgpu)] for h in doomed), tuple(out))


def _lost(lost: Sequence[Here]) -> Cost:
    return sum(h.vgpu.held for h in lost), len(lost)


def _sum(rest: Cost, lost: Sequence[Here]) -> Cost:
    """The cost of a step and all after it."""
    here = _lost(lost)
    return rest if rest == _ENDLESS else (rest[0] + here[0], rest[1] + here[1])


def _order(item: Item) -> tuple[int, str, str]:
    return item.type.id or 0, item.wish.function, item.wish.uuid


def _placed(room: MixedRoom, here: Sequence[Here]) -> list[Here]:
    """What is there, each with a place: where nobody can tell, the first one that is free beside the others."""
    known = [h for h in here if h.spot is not None]
    taken = room.start([Seat(h.type, h.spot) for h in known if h.type is not None])
    for each in here:
        if each.spot is None and each.type is not None:
            found = room.put(taken, each.type)
            taken, spot = found if found is not None else (taken, None)
            known.append(each._replace(spot=spot))
        elif each.spot is None:
            known.append(each)
    return known


class _Walk:
    """One board, what is on it and what is wanted."""

    def __init__(self, room: MixedRoom, items: Sequence[Item], here: Sequence[Here]) -> None:
        self.room = room
        self.partners = Partners(items, places=True)
        self.by_kind: dict[Hashable, list[Item]] = {}
        for item in sorted(items, key=lambda i: repr(room.kind(i.type))):
            self.by_kind.setdefault(room.kind(item.type), []).append(item)
        self.kinds = sorted(self.by_kind, key=lambda k: -room.size(self.by_kind[k][0].type))
        self.sizes = [room.size(self.by_kind[k][0].type) for k in self.kinds]
        self.places = [frozenset(self.by_kind[k][0].type.mixed) for k in self.kinds]
        self.pinned = {i.wish.placement: room.kind(i.type) for i in items if i.wish.placement is not None}
        self.watched = [k for k, kind in enumerate(self.kinds) if kind in self.pinned.values()]
        self.starting: dict[int, list[Here]] = {}
        self.nowhere = [h for h in here if h.spot is None or h.type is None]
        for each in here:
            if each.spot is not None and each.type is not None:
                self.starting.setdefault(each.spot, []).append(each)
        surplus = self.partners.surplus(here)
        self.scarce: list[Bucket] = [b for b, n in surplus.items() if n and b in self.partners.items]
        caps = tuple(len(self.partners.items[b]) for b in self.scarce)
        self.start = _State(0, 0, 0, tuple(len(self.by_kind[k]) for k in self.kinds), caps)
        self._costs: dict[_State, Cost] = {}

    def cost(self, state: _State) -> Cost:
        """The least that must be destroyed from here on; endless where the rest cannot be placed."""
        if state in self._costs:
            return self._costs[state]
        best = _ENDLESS
        for step in self.steps(state):
            best = min(best, _sum(self.cost(step.state), step.lost))
            if best == (0, 0):
                break
        if state.at >= self.room.table.region and not any(state.left):
            best = 0, 0
        self._costs[state] = best
        return best

    def path(self) -> tuple[list[Here], list[Here], list[tuple[Hashable, int]]]:
        """The first cheapest walk: what stays, what goes, and what is made where, from left to right."""
        kept: list[Here] = []
        doomed: list[Here] = list(self.nowhere)
        made: list[tuple[Hashable, int]] = []
        state = self.start
        while state.at < self.room.table.region:
            goal = self.cost(state)
            for step in self.steps(state):
                if _sum(self.cost(step.state), step.lost) == goal:
                    break
            kept += [step.kept] if step.kept is not None else []
            made += [(self.kinds[step.made], state.at)] if step.made is not None else []
            doomed += step.lost
            state = step.state
        return kept, doomed, made

    def steps(self, state: _State) -> Iterator[_Step]:
        """What can happen at this GiB: something stays, something is made (biggest first), or it is left free."""
        region = self.room.table.region
        room = sum(n * size for n, size in zip(state.left, self.sizes, strict=True))
        if state.at >= region or room > region - state.at:
            return
        for each in self.starting.get(state.at, ()):
            step = self._keep(state, each)
            if step is not None:
                yield step
        for k, n in enumerate(state.left):
            if n and state.at in self.places[k] and not state.passed >> k & 1 and self._may_be(state.at, k):
                left = (*state.left[:k], n - 1, *state.left[k + 1 :])
                yield _Step(self._next(state, self.sizes[k], left), self._under(state.at, self.sizes[k]), made=k)
        if state.at not in self.pinned:
            yield _Step(self._free(state), self._under(state.at, 1))

    def _may_be(self, place: int, kind: int) -> bool:
        """Whether a new one of this size may cover these GiB: not places that were asked for others."""
        inside = range(place, place + self.sizes[kind])
        return all(
            self.pinned.get(at) is None or (at == place and self.pinned[at] == self.kinds[kind]) for at in inside
        )

    def _keep(self, state: _State, each: Here) -> _Step | None:
        bucket = self.partners.bucket(each)
        if bucket not in self.partners.items or each.type is None:
            return None
        k = self.kinds.index(self.room.kind(each.type))
        caps = list(state.caps)
        if bucket in self.scarce:
            caps[self.scarce.index(bucket)] -= 1
        size = self.room.size(each.type)
        if not state.left[k] or min(caps, default=0) < 0 or not self._may_stay(each, size):
            return None
        left = (*state.left[:k], state.left[k] - 1, *state.left[k + 1 :])
        others = tuple(h for h in self._under(state.at, size) if h is not each)
        return _Step(self._next(state, size, left)._replace(caps=tuple(caps)), others, kept=each)

    def _may_stay(self, each: Here, size: int) -> bool:
        assert each.spot is not None
        asked = [at for at in range(each.spot, each.spot + size) if at in self.pinned]
        meets = self.partners.bucket(each)
        return not asked or (asked == [each.spot] and isinstance(meets, int))

    def _under(self, at: int, size: int) -> tuple[Here, ...]:
        return tuple(h for n in range(at, at + size) for h in self.starting.get(n, ()))

    def _next(self, state: _State, size: int, left: tuple[int, ...]) -> _State:
        passed = sum(1 << k for k, n in enumerate(left) if n and state.passed >> k & 1)
        return _State(state.at + size, state.at + size, passed, left, state.caps)

    def _free(self, state: _State) -> _State:
        """One GiB more is free: a place that lies in the free run as a whole is passed over for its size."""
        end, passed = state.at + 1, state.passed
        for k in self.watched:
            place = end - self.sizes[k]
            if state.left[k] and place >= state.free and place in self.places[k]:
                passed |= 1 << k
        return state._replace(at=end, passed=passed, free=state.free if self.watched else end)
