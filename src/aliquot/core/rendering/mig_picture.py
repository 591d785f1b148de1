"""The instances of a GPU for a picture: a letter on memory slices, now and after a plan."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from aliquot.core.model.actions import Action, Create, Destroy, Reset
from aliquot.core.model.geometry import geometry, geometry_text
from aliquot.core.model.inventory import Gpu
from aliquot.core.model.placement import Placement

LETTERS = "abcdefghijklmnopqrstuvwxyz"


class DrawnInstance(msgspec.Struct, frozen=True):
    """An instance in a picture: a letter on its memory slices. ``fresh``: a plan creates it."""

    letter: str
    profile: str
    place: Placement
    held: bool = False
    fresh: bool = False


def current_instances(gpu: Gpu) -> tuple[DrawnInstance, ...]:
    """Return the present instances, with letters from the lowest memory slice on."""
    ordered = sorted(gpu.instances, key=lambda i: i.place.start)
    return tuple(DrawnInstance(LETTERS[n], i.profile, i.place, i.held) for n, i in enumerate(ordered))


def has_divided_instances(gpu: Gpu) -> bool:
    """Report whether an instance has something other than one compute instance of full size: then its profile and
    placement do not describe it completely.
    """
    return any(len(i.compute_instances) != 1 or i.compute_instances[0].profile != i.profile for i in gpu.instances)


def planned_instances(gpu: Gpu, actions: Sequence[Action]) -> tuple[DrawnInstance, ...]:
    """Return the planned instances: those that stay keep their letters, new ones get the next, from the left."""
    gone = {Placement.parse(a.placement) for a in actions if isinstance(a, Destroy)}
    wiped = any(isinstance(a, Reset) for a in actions)
    stay = [p for p in current_instances(gpu) if p.place not in gone and not wiped]
    new = sorted((Placement.parse(a.placement), a.profile) for a in actions if isinstance(a, Create))
    offset = len(gpu.instances)
    made = [DrawnInstance(LETTERS[offset + n], name, place, fresh=True) for n, (place, name) in enumerate(new)]
    return tuple(sorted([*stay, *made], key=lambda p: p.place.start))


def product(gpu: Gpu) -> str:
    """Return the product name without the vendor, which is always the same."""
    return gpu.product.removeprefix("NVIDIA ")


def title(gpu: Gpu) -> str:
    return f"GPU {gpu.index}  {gpu.pci}  {product(gpu)}"


def summary(instances: Sequence[DrawnInstance]) -> str:
    """Return ``1g.5gb:3  (a held)``."""
    held = [p.letter for p in instances if p.held]
    return geometry_text(geometry(p.profile for p in instances)) + (f"  ({', '.join(held)} held)" if held else "")


def letter_at(instances: Sequence[DrawnInstance], placement: str) -> str:
    place = Placement.parse(placement)
    return next((p.letter for p in instances if p.place == place), "")


def instance_letter(gpu: Gpu, instance_id: int | None) -> str:
    """Return the letter of a GPU instance, empty for none."""
    instance = None if instance_id is None else gpu.instance(instance_id)
    return letter_at(current_instances(gpu), instance.placement) if instance else ""
