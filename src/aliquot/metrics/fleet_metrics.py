"""The figures of many nodes at once: sums alone, so that a thousand nodes are as many series as one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from aliquot.core.planner.fragmentation import holes
from aliquot.metrics.instruments import Families
from aliquot.metrics.snapshot import Look

FRESH, STALE, UNKNOWN = STATES = ("fresh", "stale", "unknown")


class Fleet(Collector):
    """``looks`` tells each node's last look, and whether it is fresh, stale or unknown."""

    def __init__(self, looks: Callable[[], Iterable[tuple[Look, str]]]) -> None:
        self._looks = looks

    def collect(self) -> Iterator[Metric]:
        out = Families()
        add(self._looks(), out)
        yield from out.all()


def add(looks: Iterable[tuple[Look, str]], out: Families) -> None:
    """All sums. What was seen of a stale node counts still: it is marked as such."""
    states: Counter[str] = Counter()
    instances: Counter[tuple[str, str]] = Counter()
    fits: Counter[tuple[str, str]] = Counter()
    drift: Counter[str] = Counter()
    gpus = free = stranded = 0
    for look, state in looks:
        states[state] += 1
        drift.update(d.kind for d in look.drift)
        for gpu in look.inventory.gpus if look.inventory is not None else ():
            gpus += 1
            instances.update((i.profile, "held" if i.held else "idle") for i in gpu.instances)
            found = holes(look.inventory, gpu, look.wanted or None) if look.inventory is not None else None
            if found is None:
                continue
            free, stranded = free + len(found.free), stranded + len(found.stranded)
            for room in found.rooms:
                fits[room.profile, "now"] += room.now
                fits[room.profile, "repacked"] += room.repacked
    for state in STATES:
        out.add("aliquot_fleet_nodes", (state,), states[state])
    out.add("aliquot_fleet_gpus", (), gpus)
    out.add("aliquot_fleet_free_memory_slices", (), free)
    out.add("aliquot_fleet_stranded_memory_slices", (), stranded)
    for profile, held in sorted(instances):
        out.add("aliquot_fleet_instances", (profile, held), instances[profile, held])
    for profile, arrangement in sorted(fits):
        out.add("aliquot_fleet_profile_fits", (profile, arrangement), fits[profile, arrangement])
    for kind, count in sorted((drift or {"none": 0}).items()):
        out.add("aliquot_fleet_drift", (kind,), count)
