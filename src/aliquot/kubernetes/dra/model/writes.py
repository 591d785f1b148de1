"""The writes that turn the slices in the cluster into those that a node should have.

Slices of one generation may be written one after the other if every state in between is a valid pool. It must have all
devices that are there before and after. Otherwise all get a new generation. Until the last one is written, the
scheduler then sees an incomplete pool and allocates nothing of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from aliquot.kubernetes.dra.model.objects import ResourceSlice, ResourceSliceSpec
from aliquot.kubernetes.dra.model.validation import find_faults

replace = msgspec.structs.replace


class SliceWrites(msgspec.Struct, frozen=True):
    """Writes in the order in which they must be done: creations and updates as listed, then deletions."""

    create: tuple[ResourceSlice, ...] = ()
    update: tuple[ResourceSlice, ...] = ()
    """With the uid and resource version of the objects that they replace."""
    delete: tuple[ResourceSlice, ...] = ()

    @property
    def count(self) -> int:
        return len(self.create) + len(self.update) + len(self.delete)


def plan_writes(current: Sequence[ResourceSlice], wanted: Sequence[ResourceSlice], node: str) -> SliceWrites:
    """Return the writes. ``current`` are the node's slices of this driver; the generations of ``wanted`` do not
    matter.
    """
    creations: list[ResourceSlice] = []
    updates: list[ResourceSlice] = []
    deletions: list[ResourceSlice] = []
    pools = {each.spec.pool.name for each in (*current, *wanted)}
    for pool in sorted(pools):
        writes = _pool_writes(_of(current, pool), _of(wanted, pool), node)
        creations += writes.create
        updates += writes.update
        deletions += writes.delete
    return SliceWrites(tuple(creations), tuple(updates), tuple(deletions))


def _of(slices: Sequence[ResourceSlice], pool: str) -> dict[str, ResourceSlice]:
    return {each.name: each for each in slices if each.spec.pool.name == pool}


def _pool_writes(current: dict[str, ResourceSlice], wanted: dict[str, ResourceSlice], node: str) -> SliceWrites:
    generation = max((each.spec.pool.generation for each in current.values()), default=0)
    same = {name: _at(each, generation) for name, each in wanted.items()}
    changed = [name for name in same if name not in current or current[name].spec != same[name].spec]
    if current.keys() == same.keys():
        if not changed:
            return SliceWrites()
        order = _safe_order(current, same, changed, node)
        if order is not None:
            return SliceWrites(update=tuple(_over(current[name], same[name]) for name in order))
    newer = {name: _at(each, generation + 1) for name, each in wanted.items()}
    return SliceWrites(
        tuple(each for name, each in newer.items() if name not in current),
        tuple(_over(current[name], each) for name, each in newer.items() if name in current),
        tuple(each for name, each in current.items() if name not in newer),
    )


def _safe_order(
    current: Mapping[str, ResourceSlice], wanted: Mapping[str, ResourceSlice], changed: Sequence[str], node: str
) -> tuple[str, ...] | None:
    """Return an order of updates in which each one leaves a valid pool with all lasting devices. None without one."""
    if len(changed) == 1:
        return tuple(changed)
    lasting = _devices(current) & _devices(wanted)
    for order in (tuple(changed), tuple(reversed(changed))):
        state = dict(current)
        for name in order[:-1]:
            state[name] = wanted[name]
            if find_faults(tuple(state.values()), node) or not lasting <= _devices(state):
                break
        else:
            return order
    return None


def _devices(slices: Mapping[str, ResourceSlice]) -> set[str]:
    return {device.name for each in slices.values() for device in each.spec.devices}


def _at(each: ResourceSlice, generation: int) -> ResourceSlice:
    spec: ResourceSliceSpec = each.spec
    return replace(each, spec=replace(spec, pool=replace(spec.pool, generation=max(1, generation))))


def _over(current: ResourceSlice, wanted: ResourceSlice) -> ResourceSlice:
    return replace(wanted, metadata=replace(current.metadata, name=wanted.name))
