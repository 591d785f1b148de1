"""Placed geometries as bit sets: what a change of whole instances costs, for searches that compare many geometries.

Such a change needs no search of its own: every placed geometry is known, and a few bits tell what it retains.
"""

from __future__ import annotations

from collections.abc import Sequence

from aliquot.core.model.desired import DesiredInstance
from aliquot.core.model.inventory import Gpu, GpuInstance
from aliquot.core.planner import compute_instances as compute
from aliquot.core.planner.placement_search import Cost, arrangements
from aliquot.core.planner.placement_table import PlacementTable
from aliquot.core.planner.rules import allowed
from aliquot.core.planner.target_state import placed_key

_FIELD = 8
"""Bits for the count of a profile."""
_FULL = (1 << _FIELD) - 1


def packed_count(table: PlacementTable, profile_id: int) -> int:
    """Return one instance of a profile as packed counts. Their sum packs a geometry."""
    return 1 << (table.order[profile_id][2] * _FIELD)


def placed_states(table: PlacementTable, geometry: int) -> tuple[tuple[int, int], ...]:
    """Return every placed geometry with these packed counts: the bits of its instances, and its headroom.

    Empty if the counts are illegal.
    """
    known = table.placed_states.get(geometry)
    if known is None:
        counts = {p: count for n, p in enumerate(table.starts) if (count := geometry >> (n * _FIELD) & _FULL)}
        found = arrangements(table, counts) if allowed(table, counts) else ()
        known = tuple((sum(map(table.bits.__getitem__, each)), table.headroom(table.mask(each))) for each in found)
        table.placed_states[geometry] = known
    return known


def present_bits(table: PlacementTable, instances: Sequence[GpuInstance]) -> int:
    """Return the bits of instances. One at a placement outside the table has none."""
    return sum(table.bits.get(placed_key(i), 0) for i in instances)


def is_whole(table: PlacementTable, request: DesiredInstance) -> bool:
    """Report whether a request is for a whole instance at any placement."""
    profile = table.profiles.get(request.profile_id)
    plain = not request.loose and request.start is None and request.compute_starts is None
    return profile is not None and plain and request.compute == (profile.default_compute.id,)


def has_whole_instances(table: PlacementTable, gpu: Gpu) -> bool:
    """Report whether each GPU instance has the one compute instance that a request for a whole instance creates."""
    for instance in gpu.instances:
        profile = table.profiles.get(instance.profile_id)
        if profile is None:
            return False
        layout = (profile.default_compute.id,)
        change = compute.change(profile, instance.compute_instances, layout, None)
        if change is None or change.weight != (0, 0, 0):
            return False
    return True


class WholeInstances:
    """A GPU with whole instances only."""

    def __init__(self, table: PlacementTable, gpu: Gpu) -> None:
        self.table = table
        self.geometry = sum(packed_count(table, i.profile_id) for i in gpu.instances)
        self._present = present_bits(table, gpu.instances)
        self._held = present_bits(table, [i for i in gpu.instances if i.held])
        self._count = len(gpu.instances)

    def cost(self, geometry: int, count: int) -> Cost | None:
        """Return the least cost of ending with this geometry of ``count`` instances, as ``TargetSearch.find_best``."""
        present, held = self._present, self._held
        best = min(
            (
                ((held & ~bits).bit_count(), -(present & bits).bit_count(), -headroom)
                for bits, headroom in placed_states(self.table, geometry)
            ),
            default=None,
        )
        if best is None:
            return None
        lost, retained, headroom = best
        return lost, self._count + retained, 0, count + retained, 0, headroom
