"""Inventories for oracle tests about compute instances, from the contents of GPU instances by name."""

from __future__ import annotations

import random
from collections import Counter

import msgspec

from aliquot.core.model import catalog
from aliquot.core.model.inventory import ComputeInstance, Gpu, GpuInstance
from laws.oracle import compute_raw, mig_nodes, raw
from laws.oracle.compute_raw import Device, Inner, Node

replace = msgspec.structs.replace
Held = frozenset[tuple[raw.Placed, tuple[str, int]]]


def gpu(family: catalog.Family, now: Node, held: Held = frozenset()) -> Gpu:
    """Build a GPU with these compute instances in these GPU instances."""
    whole = mig_nodes.gpu(family, now)

    def inside(instance: GpuInstance) -> GpuInstance:
        place = instance.profile, instance.place.start
        profile = family.by_id[instance.profile_id]
        made = []
        for n, (name, start) in enumerate(sorted(now[place], key=lambda c: c[1])):
            compute = next(c for c in profile.compute if c.name == name)
            holders = (mig_nodes.PROCESS,) if (place, (name, start)) in held else ()
            made.append(ComputeInstance(n, name, compute.id, f"{start}:{compute.size}", holders=holders))
        busy = tuple(holder for c in made for holder in c.holders)
        return replace(instance, held=bool(busy), holders=busy, compute_instances=tuple(made))

    return replace(whole, instances=tuple(map(inside, whole.instances)))


def devices(found: Gpu) -> Counter[Device]:
    return Counter((i.profile, c.profile) for i in found.instances for c in i.compute_instances)


def inner(dice: random.Random, family: str, profile: str) -> Inner:
    return dice.choice(compute_raw.inners(family, profile))


def node(dice: random.Random, family: str) -> tuple[Node, Held]:
    """Return a random state in which some compute instances are held, and some GPU instances have none."""
    now = {place: inner(dice, family, place[0]) for place in dice.choice(raw.states(family))}
    held = frozenset((place, c) for place, parts in now.items() for c in parts if dice.random() < 0.15)
    return now, held
