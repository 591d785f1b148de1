"""Which vGPU that is there can meet which wish."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

from aliquot.core.model.desired import VgpuWish
from aliquot.core.model.inventory import Vgpu
from aliquot.core.model.vgpu_types import VgpuType
from aliquot.core.planner.vgpu.placement_policies import Spot


class Item(NamedTuple):
    """One vGPU that is wanted."""

    wish: VgpuWish
    type: VgpuType


class Here(NamedTuple):
    """One vGPU that is there. ``type`` is None where the table does not have it, ``spot`` where nobody can tell."""

    vgpu: Vgpu
    type: VgpuType | None
    spot: Spot = None


class Aim(NamedTuple):
    """The end state for the vGPUs of one GPU. ``made`` is in the order of creation."""

    kept: tuple[Here, ...]
    doomed: tuple[Here, ...]
    made: tuple[tuple[Item, Spot], ...]

    @property
    def cost(self) -> tuple[int, int]:
        """(held vGPUs destroyed, vGPUs destroyed)."""
        return sum(h.vgpu.held for h in self.doomed), len(self.doomed)


Bucket = Hashable
"""What a wanted vGPU can be met by: one function, one UUID, one place, or any of a type."""


class Partners:
    """Which present vGPU can meet which wish. A vGPU on a function (or with a UUID) that was asked for can only meet
    that wish; all others are met by any vGPU of their type.
    """

    def __init__(self, items: Sequence[Item], places: bool) -> None:
        self.places = places
        self.items: dict[Bucket, list[Item]] = {}
        self._pins: dict[tuple[str, str | int], Item] = {}
        for item in items:
            wish = item.wish
            pins: list[tuple[str, str | int]] = []
            pins += [("function", wish.function)] if wish.function else []
            pins += [("uuid", wish.uuid)] if wish.uuid else []
            pins += [("place", wish.placement)] if places and wish.placement is not None else []
            self._pins.update(dict.fromkeys(pins, item))
            self.items.setdefault(id(item) if pins else f"type {wish.type_id}", []).append(item)

    def bucket(self, here: Here) -> Bucket:
        """The bucket of a vGPU that is there, None if it meets no wish."""
        vgpu = here.vgpu
        place = -1 if here.spot is None else here.spot
        for key in (("function", vgpu.function), ("uuid", vgpu.uuid), ("place", place)):
            item = self._pins.get(key)
            if item is not None and (key[0] != "place" or item.wish.type_id == vgpu.type_id):
                return id(item) if self._meets(here, item.wish) else None
        return f"type {vgpu.type_id}" if f"type {vgpu.type_id}" in self.items else None

    def _meets(self, here: Here, wish: VgpuWish) -> bool:
        vgpu = here.vgpu
        return (
            vgpu.type_id == wish.type_id
            and wish.function in ("", vgpu.function)
            and (not wish.uuid or vgpu.uuid in ("", wish.uuid))
            and (not self.places or wish.placement in (None, here.spot))
        )

    def surplus(self, here: Sequence[Here]) -> dict[Bucket, int]:
        """How many more there are than wanted, by bucket."""
        having: dict[Bucket, int] = {}
        for each in here:
            having[self.bucket(each)] = having.get(self.bucket(each), 0) + 1
        return {b: max(0, n - len(self.items.get(b, ()))) for b, n in having.items()}

    def missing(self, here: Sequence[Here]) -> list[Item]:
        """What is missing where all of these stay."""
        having = [self.bucket(each) for each in here]
        return [item for bucket, items in self.items.items() for item in items[having.count(bucket) :]]
