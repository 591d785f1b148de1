"""Metrics of many nodes at once: only sums, so that a thousand nodes have as many series as one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from aliquot.core.planner.fragmentation import find_fragmentation
from aliquot.metrics.instruments import MetricFamilies
from aliquot.metrics.snapshot import NodeSnapshot

FRESH, STALE, UNKNOWN = STATES = ("fresh", "stale", "unknown")


class FleetCollector(Collector):
    """Collector of the sums. ``snapshots`` returns each node's last observation, and whether it is fresh, stale or
    unknown.
    """

    def __init__(self, snapshots: Callable[[], Iterable[tuple[NodeSnapshot, str]]]) -> None:
        self._snapshots = snapshots

    def collect(self) -> Iterator[Metric]:
        out = MetricFamilies()
        add_fleet(self._snapshots(), out)
        yield from out.all()


def add_fleet(snapshots: Iterable[tuple[NodeSnapshot, str]], out: MetricFamilies) -> None:
    """Add all sums. A stale node still counts with its last observation."""
    states: Counter[str] = Counter()
    instances: Counter[tuple[str, str]] = Counter()
    fits: Counter[tuple[str, str]] = Counter()
    drift: Counter[str] = Counter()
    gpus = free = stranded = 0
    for snapshot, state in snapshots:
        states[state] += 1
        drift.update(d.kind for d in snapshot.drift)
        for gpu in snapshot.inventory.gpus if snapshot.inventory is not None else ():
            gpus += 1
            instances.update((i.profile, "held" if i.held else "idle") for i in gpu.instances)
            found = (
                find_fragmentation(snapshot.inventory, gpu, snapshot.wanted or None)
                if snapshot.inventory is not None
                else None
            )
            if found is None:
                continue
            free, stranded = free + len(found.free), stranded + len(found.stranded)
            for capacity in found.capacities:
                fits[capacity.profile, "now"] += capacity.now
                fits[capacity.profile, "repacked"] += capacity.repacked
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
