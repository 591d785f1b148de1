"""The end state of one GPU after instances are added and removed, with the least destroyed.

Existing instances stay: each GPU instance keeps its compute instances together, but an idle one may move. Compute
instances are regrouped only in profiles of which single compute instances are added or removed. A GPU instance without
compute instances is filled before another one is created, and is destroyed if it blocks something.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product

import msgspec

from aliquot.core.model.desired import DesiredGpu, DesiredInstance
from aliquot.core.model.inventory import Gpu, GpuInstance
from aliquot.core.planner.compute_grouping import groupings, is_placeable
from aliquot.core.planner.placement_search import Cost
from aliquot.core.planner.placement_table import PlacementTable
from aliquot.core.planner.target_state import TargetSearch, TargetState, placed_key
from aliquot.core.planner.verify import meets

_Content = tuple[int, tuple[int, ...]]
"""A GPU instance without its placement: profile id, and compute profile ids in order."""

UNCHANGED: Cost = (0,) * 8


class ChangedGpu(msgspec.Struct, frozen=True):
    """The best end state of a GPU."""

    cost: Cost = UNCHANGED
    """Counts in this order; the costs of several GPUs add up.

    - held things destroyed
    - MIG modes set
    - GPU instances destroyed
    - compute instances destroyed in GPU instances that stay
    - GPUs changed
    - GPU instances created
    - compute instances created in GPU instances that stay
    - placements that are no longer free
    """
    desired: DesiredGpu | None = None
    """None leaves the GPU unchanged."""


def change_gpu(
    table: PlacementTable,
    gpu: Gpu,
    add: Sequence[DesiredInstance],
    remove: Sequence[DesiredInstance] = (),
    *,
    replacing: bool = False,
) -> ChangedGpu | None:
    """Return the best end state with ``add`` besides the present instances and without ``remove``. None if there is
    none.

    If ``replacing``, only ``add`` exists afterwards, and an empty GPU outside MIG mode is left unchanged.
    """
    if not add and not remove and not (replacing and gpu.mig.enabled):
        return ChangedGpu()
    excluded = frozenset((r.profile_id, r.start) for r in remove if r.start is not None)
    if not excluded <= {placed_key(i) for i in gpu.instances}:
        return None
    options = [tuple(add)] if replacing else contents_after(table, gpu, add, remove)
    best: tuple[Cost, TargetState, tuple[DesiredInstance, ...]] | None = None
    for requests in options:
        if is_placeable(table, groupings(table, requests)[0]):
            found = TargetSearch(table, gpu, requests, excluded).find_best()
            if found is not None and (best is None or found[0] < best[0]):
                best = *found, requests
    if best is None:
        return None
    cost, end_state, requests = best
    instances = _pinned(table, end_state) if excluded else requests
    return ChangedGpu(total_cost(gpu, cost, present_headroom(table, gpu)), DesiredGpu(gpu.pci, True, instances))


def total_cost(gpu: Gpu, cost: Cost, before: int) -> Cost:
    """Return the cost of an end state, comparable over GPUs, if the headroom is ``before`` now.

    A GPU in use as a whole counts as held.
    """
    held, destroyed, inside, new, made, headroom = cost
    mode = int(not gpu.mig.enabled)
    busy = bool(gpu.holders or gpu.passthrough or (mode and gpu.vgpus))
    changed = bool(mode or destroyed or inside or new or made)
    return held + (busy and changed), mode, destroyed, inside, int(changed), new, made, before + headroom


def present_headroom(table: PlacementTable, gpu: Gpu) -> int:
    """Return the headroom beside the present instances."""
    return table.headroom(table.mask(k for k in map(placed_key, gpu.instances) if k in table.masks))


def _pinned(table: PlacementTable, end_state: TargetState) -> tuple[DesiredInstance, ...]:
    """Return the end state as requests with placements.

    Without placements, keeping what should be destroyed would also meet them.
    """
    return tuple(
        DesiredInstance(place[0], table.profiles[place[0]].name, compute, place[1], starts)
        for place, (compute, starts) in sorted(end_state.layouts.items())
    )


def present_contents(table: PlacementTable, gpu: Gpu) -> tuple[DesiredInstance, ...]:
    """Return the instances of a GPU as requests without placements."""
    return next(contents_after(table, gpu, (), ()))


def contents_after(
    table: PlacementTable, gpu: Gpu, add: Sequence[DesiredInstance], remove: Sequence[DesiredInstance]
) -> Iterator[tuple[DesiredInstance, ...]]:
    """Yield every possible content of a GPU with ``add`` and without ``remove``, as requests."""
    loose = {request.profile_id for request in (*add, *remove) if request.loose}
    placed = {(request.profile_id, request.start) for request in remove if request.start is not None}
    units, parts = _units(table, [i for i in gpu.instances if placed_key(i) not in placed], loose)
    gone: Counter[int] = Counter()
    for request in remove:
        if request.loose:
            parts.subtract((request.profile_id, part) for part in request.compute)
        elif request.start is None:
            gone[request.profile_id] += 1
    if min(parts.values(), default=0) < 0:
        return
    pool = [_request(table, (p, (part,)), loose=True) for (p, part), n in sorted(parts.items()) for _ in range(n)]
    for left in _without(table, units, gone):
        for kept in _fewer_empty(left) if add else [left]:
            yield (*(_request(table, unit) for unit in sorted(kept.elements())), *pool, *add)


def lacking_instances(gpu: Gpu, requests: Sequence[DesiredInstance]) -> tuple[DesiredInstance, ...]:
    """Return those requests that the instances on the GPU do not meet."""
    left = list(gpu.instances)
    lacking: list[DesiredInstance] = []
    for request in sorted(requests, key=lambda r: (r.start is None, r.compute_starts is None)):
        if request.loose:
            continue
        found = next((i for i in left if meets(i, request)), None)
        if found is None:
            lacking.append(request)
        else:
            left.remove(found)
    parts = Counter((i.profile_id, i.place.start, c.profile_id) for i in left for c in i.compute_instances)
    for request in sorted(requests, key=lambda r: r.start is None):
        for part in request.compute if request.loose else ():
            starts = [s for p, s, c in +parts if (p, c) == (request.profile_id, part) and request.start in (None, s)]
            if starts:
                parts[request.profile_id, min(starts), part] -= 1
            else:
                lacking.append(msgspec.structs.replace(request, compute=(part,)))
    return tuple(lacking)


def count_removable(table: PlacementTable, gpu: Gpu, request: DesiredInstance) -> int:
    """Return how many instances of a GPU match a request to remove one."""
    whole = _whole(table, request.profile_id)
    count = 0
    for instance in gpu.instances:
        profile_id, inside = _content(instance)
        if profile_id != request.profile_id:
            continue
        if request.loose:
            count += sum(part in request.compute for part in inside)
        elif request.start is None:
            count += inside in ((), whole)
        else:
            count += request.start == instance.place.start
    return count


def _units(
    table: PlacementTable, instances: Sequence[GpuInstance], loose: set[int]
) -> tuple[Counter[_Content], Counter[tuple[int, int]]]:
    """Return the GPU instances that stay as they are, and the compute instances that may be regrouped, by profile."""
    units: Counter[_Content] = Counter()
    parts: Counter[tuple[int, int]] = Counter()
    for instance in instances:
        profile_id, inside = _content(instance)
        if profile_id in loose and inside not in ((), _whole(table, profile_id)):
            parts.update((profile_id, part) for part in inside)
        else:
            units[profile_id, inside] += 1
    return units, parts


def _without(table: PlacementTable, units: Counter[_Content], gone: Counter[int]) -> Iterator[Counter[_Content]]:
    """Yield what is left after destroying so many GPU instances of each profile: whole ones, or those without compute
    instances.
    """
    ranges = (range(min(n, units[p, ()]), -1, -1) for p, n in gone.items())
    for split in product(*ranges):
        left = units.copy()
        for (profile_id, n), empty in zip(gone.items(), split, strict=True):
            left.subtract({(profile_id, ()): empty, (profile_id, _whole(table, profile_id)): n - empty})
        if min(left.values(), default=0) >= 0:
            yield +left


def _fewer_empty(units: Counter[_Content]) -> Iterator[Counter[_Content]]:
    """Yield the same content with all of its GPU instances without compute instances, then with fewer."""
    empty = [unit for unit in units if not unit[1]]
    for counts in product(*(range(units[unit], -1, -1) for unit in empty)):
        yield +Counter({**units, **dict(zip(empty, counts, strict=True))})


def _content(instance: GpuInstance) -> _Content:
    return instance.profile_id, tuple(sorted(c.profile_id for c in instance.compute_instances))


def _whole(table: PlacementTable, profile_id: int) -> tuple[int, ...]:
    profile = table.profiles.get(profile_id)
    return (profile.default_compute.id,) if profile else ()


def _request(table: PlacementTable, unit: _Content, *, loose: bool = False) -> DesiredInstance:
    profile = table.profiles.get(unit[0])
    return DesiredInstance(unit[0], profile.name if profile else f"id:{unit[0]}", unit[1], loose=loose)
