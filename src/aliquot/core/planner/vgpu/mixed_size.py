"""Mixed-size mode: which vGPUs stay, and which placements the new ones can get.

The driver puts a vGPU at the first free placement of its size. Placements of one size never overlap, so a new vGPU
depends only on vGPUs to the left of it. Therefore a set of placements is reachable under one condition: no placement of
a size is left free to the left of a new vGPU of that size. It is then reached by creating the new vGPUs from left to
right. So one walk over the memory from left to right is a complete search, if it remembers the cheapest rest for each
state.

A free placement to the left is not a loss: the vGPU of its size fits there, too, at no cost. The walk tries to create
one before it leaves a placement free. So it tracks free placements only for sizes with a requested placement.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import NamedTuple

from aliquot.core.planner.vgpu.matching import MatchKey, PresentVgpu, VgpuMatches, VgpuTarget, WantedVgpu
from aliquot.core.planner.vgpu.placement_policies import MixedSizePolicy, PlacedVgpu

Cost = tuple[int, int]
"""(held vGPUs destroyed, vGPUs destroyed)."""
_INFINITE: Cost = (1 << 30, 1 << 30)


class _State(NamedTuple):
    """The state of the walk at GiB ``at``."""

    at: int
    free: int
    """Start of the free GiB before ``at``, tracked only if a placement was requested."""
    passed: int
    """Sizes, as bits, with a placement that was left free."""
    left: tuple[int, ...]
    """Number of vGPUs still to come, by size."""
    caps: tuple[int, ...]
    """Number of vGPUs that may still stay, by match key with a surplus."""


class _Step(NamedTuple):
    """A step at one GiB: a vGPU stays (``retained``), one of a size is created (``created``), or neither."""

    state: _State
    lost: tuple[PresentVgpu, ...]
    retained: PresentVgpu | None = None
    created: int | None = None


def find_mixed_size_target(
    policy: MixedSizePolicy, items: Sequence[WantedVgpu], present: Sequence[PresentVgpu]
) -> VgpuTarget | None:
    """Return the target that destroys the fewest vGPUs, held ones last. None if the items can never be placed."""
    places = [i.request.placement for i in items if i.request.placement is not None]
    if len(set(places)) < len(places):
        return None
    walk = _Walk(policy, items, _with_placements(policy, present))
    if walk.cost(walk.start) == _INFINITE:
        return None
    retained, to_destroy, created = walk.path()
    left = walk.matches.missing(retained)
    out: list[tuple[WantedVgpu, int | None]] = []
    for kind, place in created:
        mine = [i for i in left if policy.kind(i.type) == kind]
        item = next((i for i in mine if i.request.placement == place), None)
        item = item or min((i for i in mine if i.request.placement is None), key=_order)
        left.remove(item)
        out.append((item, place))
    original = {h.vgpu.key: h for h in present}
    return VgpuTarget(
        tuple(original[h.vgpu.key] for h in retained), tuple(original[h.vgpu.key] for h in to_destroy), tuple(out)
    )


def _loss(lost: Sequence[PresentVgpu]) -> Cost:
    return sum(h.vgpu.held for h in lost), len(lost)


def _sum(rest: Cost, lost: Sequence[PresentVgpu]) -> Cost:
    """Return the cost of a step and all after it."""
    own = _loss(lost)
    return rest if rest == _INFINITE else (rest[0] + own[0], rest[1] + own[1])


def _order(item: WantedVgpu) -> tuple[int, str, str]:
    return item.type.id or 0, item.request.function, item.request.uuid


def _with_placements(policy: MixedSizePolicy, present: Sequence[PresentVgpu]) -> list[PresentVgpu]:
    """Return the present vGPUs with placements. An unknown one is assumed at the first free placement."""
    known = [h for h in present if h.placement is not None]
    taken = policy.initial_state([PlacedVgpu(h.type, h.placement) for h in known if h.type is not None])
    for each in present:
        if each.placement is None and each.type is not None:
            found = policy.place(taken, each.type)
            taken, placement = found if found is not None else (taken, None)
            known.append(each._replace(placement=placement))
        elif each.placement is None:
            known.append(each)
    return known


class _Walk:
    """The walk over one GPU with its present and requested vGPUs."""

    def __init__(self, policy: MixedSizePolicy, items: Sequence[WantedVgpu], present: Sequence[PresentVgpu]) -> None:
        self.policy = policy
        self.matches = VgpuMatches(items, True, present)
        self.by_kind: dict[Hashable, list[WantedVgpu]] = {}
        for item in sorted(items, key=lambda i: repr(policy.kind(i.type))):
            self.by_kind.setdefault(policy.kind(item.type), []).append(item)
        self.kinds = sorted(self.by_kind, key=lambda k: -policy.size(self.by_kind[k][0].type))
        self.sizes = [policy.size(self.by_kind[k][0].type) for k in self.kinds]
        self.places = [frozenset(policy.places(self.by_kind[k][0].type)) for k in self.kinds]
        self.after = [[sum(at >= n for at in places) for n in range(policy.region + 1)] for places in self.places]
        """Number of placements from each GiB on, by size."""
        self.pinned = {i.request.placement: policy.kind(i.type) for i in items if i.request.placement is not None}
        self.watched = [k for k, kind in enumerate(self.kinds) if kind in self.pinned.values()]
        self.by_start: dict[int, list[PresentVgpu]] = {}
        self.unplaced = [h for h in present if h.placement is None or h.type is None]
        for each in present:
            if each.placement is not None and each.type is not None:
                self.by_start.setdefault(each.placement, []).append(each)
        surplus = self.matches.surplus(present)
        self.scarce: list[MatchKey] = [b for b, n in surplus.items() if n and b in self.matches.items]
        caps = tuple(len(self.matches.items[b]) for b in self.scarce)
        self.start = _State(0, 0, 0, tuple(len(self.by_kind[k]) for k in self.kinds), caps)
        self._costs: dict[_State, Cost] = {}

    def cost(self, state: _State) -> Cost:
        """Return the least cost from here on, infinite if the rest cannot be placed."""
        if state in self._costs:
            return self._costs[state]
        best = _INFINITE
        for step in self.steps(state):
            best = min(best, _sum(self.cost(step.state), step.lost))
            if best == (0, 0):
                break
        if state.at >= self.policy.region and not any(state.left):
            best = 0, 0
        self._costs[state] = best
        return best

    def path(self) -> tuple[list[PresentVgpu], list[PresentVgpu], list[tuple[Hashable, int]]]:
        """Return the first cheapest walk from left to right: retained, destroyed, and created vGPUs with placements."""
        retained: list[PresentVgpu] = []
        to_destroy: list[PresentVgpu] = list(self.unplaced)
        created: list[tuple[Hashable, int]] = []
        state = self.start
        while state.at < self.policy.region:
            goal = self.cost(state)
            for step in self.steps(state):
                if _sum(self.cost(step.state), step.lost) == goal:
                    break
            retained += [step.retained] if step.retained is not None else []
            created += [(self.kinds[step.created], state.at)] if step.created is not None else []
            to_destroy += step.lost
            state = step.state
        return retained, to_destroy, created

    def steps(self, state: _State) -> Iterator[_Step]:
        """Yield the possible steps at this GiB: retain a vGPU, create one (largest first), or leave it free."""
        region = self.policy.region
        needed = sum(n * size for n, size in zip(state.left, self.sizes, strict=True))
        if state.at >= region or needed > region - state.at:
            return
        if any(n > after[state.at] for n, after in zip(state.left, self.after, strict=True)):
            return
        for each in self.by_start.get(state.at, ()):
            step = self._retain(state, each)
            if step is not None:
                yield step
        for k, n in enumerate(state.left):
            if n and state.at in self.places[k] and not state.passed >> k & 1 and self._may_create(state.at, k):
                left = (*state.left[:k], n - 1, *state.left[k + 1 :])
                yield _Step(self._next(state, self.sizes[k], left), self._covered(state.at, self.sizes[k]), created=k)
        if state.at not in self.pinned:
            yield _Step(self._leave_free(state), self._covered(state.at, 1))

    def _may_create(self, place: int, kind: int) -> bool:
        """Report whether a new vGPU of this size may cover these GiB, and no placement requested for others."""
        inside = range(place, place + self.sizes[kind])
        return all(
            self.pinned.get(at) is None or (at == place and self.pinned[at] == self.kinds[kind]) for at in inside
        )

    def _retain(self, state: _State, each: PresentVgpu) -> _Step | None:
        match_key = self.matches.match_key(each)
        if match_key not in self.matches.items or each.type is None:
            return None
        k = self.kinds.index(self.policy.kind(each.type))
        caps = list(state.caps)
        if match_key in self.scarce:
            caps[self.scarce.index(match_key)] -= 1
        size = self.policy.size(each.type)
        if not state.left[k] or min(caps, default=0) < 0 or not self._may_stay(each, size):
            return None
        left = (*state.left[:k], state.left[k] - 1, *state.left[k + 1 :])
        others = tuple(h for h in self._covered(state.at, size) if h is not each)
        return _Step(self._next(state, size, left)._replace(caps=tuple(caps)), others, retained=each)

    def _may_stay(self, each: PresentVgpu, size: int) -> bool:
        assert each.placement is not None
        requested = [at for at in range(each.placement, each.placement + size) if at in self.pinned]
        meets = self.matches.match_key(each)
        return not requested or (requested == [each.placement] and isinstance(meets, int))

    def _covered(self, at: int, size: int) -> tuple[PresentVgpu, ...]:
        return tuple(h for n in range(at, at + size) for h in self.by_start.get(n, ()))

    def _next(self, state: _State, size: int, left: tuple[int, ...]) -> _State:
        passed = sum(1 << k for k, n in enumerate(left) if n and state.passed >> k & 1)
        return _State(state.at + size, state.at + size, passed, left, state.caps)

    def _leave_free(self, state: _State) -> _State:
        """Leave one more GiB free. A placement that is then free as a whole counts as passed for its size."""
        end, passed = state.at + 1, state.passed
        for k in self.watched:
            place = end - self.sizes[k]
            if state.left[k] and place >= state.free and place in self.places[k]:
                passed |= 1 << k
        return state._replace(at=end, passed=passed, free=state.free if self.watched else end)
