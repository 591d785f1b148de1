"""Matching of present vGPUs to requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from aliquot.core.model.desired import DesiredVgpu
from aliquot.core.model.inventory import Vgpu
from aliquot.core.model.vgpu_types import VgpuType
from aliquot.core.planner.vgpu.placement_policies import VgpuPlacement


class WantedVgpu(NamedTuple):
    """A requested vGPU."""

    request: DesiredVgpu
    type: VgpuType


class PresentVgpu(NamedTuple):
    """A vGPU that exists. ``type`` is None if the table lacks it, ``placement`` if it is unknown."""

    vgpu: Vgpu
    type: VgpuType | None
    placement: VgpuPlacement = None


class VgpuTarget(NamedTuple):
    """The target state for the vGPUs of one GPU."""

    retained: tuple[PresentVgpu, ...]
    to_destroy: tuple[PresentVgpu, ...]
    to_create: tuple[tuple[WantedVgpu, VgpuPlacement], ...]
    """In the order of creation."""

    @property
    def cost(self) -> tuple[int, int]:
        """(held vGPUs destroyed, vGPUs destroyed)."""
        return sum(h.vgpu.held for h in self.to_destroy), len(self.to_destroy)


MatchKey = int | str | None
"""What a vGPU can meet: a request for one function, UUID or placement (its number), any of its type (and plugin
parameters), or None."""


def _kind(type_id: int, parameters: str | None) -> str:
    """Return the match key of requests for any vGPU of a type, with certain plugin parameters or with any (None)."""
    return f"type {type_id}" if parameters is None else f"type {type_id} {parameters}"


def _with_present_parameters(items: Sequence[WantedVgpu], present: Sequence[PresentVgpu]) -> list[WantedVgpu]:
    """Give requests for any parameters those of a present vGPU, if other requests for the type name parameters: a vGPU
    that these do not need can then meet them.
    """
    named = Counter((i.request.type_id, i.request.parameters) for i in items if i.request.parameters is not None)
    types = {type_id for type_id, _ in named}
    left: dict[int, list[str]] = {}
    for each in sorted(present, key=lambda h: (not h.vgpu.held, h.vgpu.key)):
        kind = each.vgpu.type_id, each.vgpu.parameters
        if named[kind] > 0:
            named[kind] -= 1
        elif each.vgpu.type_id in types:
            left.setdefault(each.vgpu.type_id, []).append(each.vgpu.parameters)
    found: list[WantedVgpu] = []
    for item in items:
        request, spare = item.request, left.get(item.request.type_id)
        pinned = request.function or request.uuid or request.placement is not None
        if spare and request.parameters is None and not pinned:
            item = item._replace(request=msgspec.structs.replace(request, parameters=spare.pop(0)))
        found.append(item)
    return found


class VgpuMatches:
    """Matches between present vGPUs and requests.

    A vGPU on a requested function (or with a requested UUID) can only meet that request. Any vGPU of the type meets
    other requests, if it has their plugin parameters. Where only some requests of a type name parameters, those come
    first, and the others take the parameters of the vGPUs that are left.
    """

    def __init__(self, items: Sequence[WantedVgpu], places: bool, present: Sequence[PresentVgpu]) -> None:
        self.places = places
        items = _with_present_parameters(items, present)
        self.items: dict[MatchKey, list[WantedVgpu]] = {}
        self._pins: dict[tuple[str, str | int], tuple[int, WantedVgpu]] = {}
        for n, item in enumerate(items):
            request = item.request
            pins: list[tuple[str, str | int]] = []
            pins += [("function", request.function)] if request.function else []
            pins += [("uuid", request.uuid)] if request.uuid else []
            pins += [("place", request.placement)] if places and request.placement is not None else []
            self._pins.update(dict.fromkeys(pins, (n, item)))
            self.items.setdefault(n if pins else _kind(request.type_id, request.parameters), []).append(item)

    def match_key(self, present: PresentVgpu) -> MatchKey:
        """Return the match key of a present vGPU. None if it meets no request."""
        vgpu = present.vgpu
        place = -1 if present.placement is None else present.placement
        for key in (("function", vgpu.function), ("uuid", vgpu.uuid), ("place", place)):
            n, item = self._pins.get(key, (0, None))
            if item is not None and (key[0] != "place" or item.request.type_id == vgpu.type_id):
                return n if self._meets(present, item.request) else None
        kinds = _kind(vgpu.type_id, vgpu.parameters), _kind(vgpu.type_id, None)
        return next((kind for kind in kinds if kind in self.items), None)

    def _meets(self, present: PresentVgpu, request: DesiredVgpu) -> bool:
        vgpu = present.vgpu
        return (
            vgpu.type_id == request.type_id
            and request.function in ("", vgpu.function)
            and (not request.uuid or vgpu.uuid in ("", request.uuid))
            and (not self.places or request.placement in (None, present.placement))
            and request.parameters in (None, vgpu.parameters)
        )

    def surplus(self, present: Sequence[PresentVgpu]) -> dict[MatchKey, int]:
        """Return how many more vGPUs exist than are wanted, by match key."""
        having: dict[MatchKey, int] = {}
        for each in present:
            having[self.match_key(each)] = having.get(self.match_key(each), 0) + 1
        return {b: max(0, n - len(self.items.get(b, ()))) for b, n in having.items()}

    def missing(self, present: Sequence[PresentVgpu]) -> list[WantedVgpu]:
        """Return the requests that are unmet if all of these vGPUs stay."""
        having = [self.match_key(each) for each in present]
        return [item for match_key, items in self.items.items() for item in items[having.count(match_key) :]]
