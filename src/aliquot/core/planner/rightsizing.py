"""Suggestions of a smaller profile, by memory used over a long time, and by compute if it was measured."""

from __future__ import annotations

import msgspec

from aliquot.core.model.catalog import Family, Profile
from aliquot.core.model.inventory import Inventory
from aliquot.core.model.usage import Usage

MIN_WATCHED_S = 24 * 3600.0
"""No hint for what was watched for less: one night does not represent a day."""
SPARE_SHARE = 0.05
"""Share of the smaller profile's memory that must have been free at the peak."""

_DRIVER_MIB = 64
"""Memory of an instance that the driver itself uses, with a margin. Captures show 12 to 25 MiB on idle instances."""


class RightsizingHint(msgspec.Struct, frozen=True):
    """A hint that a smaller profile would do. It makes no statement on speed, which is unknown."""

    gpu: str
    instance: int
    now: str
    profile: str
    """The smaller profile."""
    memory_mib: int
    """Memory of the smaller profile in MiB."""
    peak_mib: int
    total_mib: int
    slices: int
    """Compute slices of the smaller profile."""
    of: int
    """Compute slices of the present profile."""
    watched_s: float
    """How long the instance was watched."""
    peak_compute: float | None = None
    without: tuple[str, ...] = ()
    """Kinds of engines that the present profile has and the smaller one lacks."""


def hints(
    inventory: Inventory, usage: tuple[Usage, ...], now: float, least_s: float = MIN_WATCHED_S
) -> tuple[RightsizingHint, ...]:
    """Return a hint for each GPU instance that has one, in the order of ``usage``."""
    found = (_find_hint(inventory, each, now, least_s) for each in usage)
    return tuple(hint for hint in found if hint is not None)


def _find_hint(inventory: Inventory, usage: Usage, now: float, least_s: float) -> RightsizingHint | None:
    gpu = next((g for g in inventory.gpus if g.pci == usage.gpu), None)
    instance = gpu.instance(usage.instance) if gpu is not None and usage.instance is not None else None
    if gpu is None or instance is None:
        return None
    try:
        family = inventory.family(gpu)
    except KeyError:
        return None
    profile = family.by_id.get(instance.profile_id)
    return None if profile is None else find_smaller(usage, profile, family, now, least_s)


def find_smaller(
    usage: Usage, profile: Profile, family: Family, now: float, least_s: float = MIN_WATCHED_S
) -> RightsizingHint | None:
    """Return a hint for the profile with the least memory that would have held the peak with ``SPARE_SHARE`` to spare.

    Among several it has the most compute slices. It has all attributes (``+me``, ``+gfx``) of the present profile and
    the multiprocessors that were busy. None if no such profile exists, if memory is unknown, or if the instance was
    watched for less than ``least_s``. Also None if it was never held: the needs of an idle instance are not known.
    """
    peak, total, watched = usage.peak_mib, usage.memory_total_mib, now - usage.watched_since
    never_held = usage.idle_since is not None and usage.idle_since <= usage.watched_since
    if peak is None or total is None or usage.watched_since <= 0 or watched < least_s or never_held:
        return None
    fitting = [p for p in family.profiles if _would_do(p, profile, peak, total, usage.peak_compute)]
    if not fitting:
        return None
    best = min(fitting, key=lambda p: (p.size, p.memory_mib or 0, -p.compute_slices))
    return RightsizingHint(
        gpu=usage.gpu,
        instance=usage.instance if usage.instance is not None else -1,
        now=profile.name,
        profile=best.name,
        memory_mib=best.memory_mib or 0,
        peak_mib=peak,
        total_mib=total,
        slices=best.compute_slices,
        of=profile.compute_slices,
        watched_s=watched,
        peak_compute=usage.peak_compute,
        without=tuple(e for e in ("dec", "enc", "jpeg", "ofa") if profile.engines.get(e) and not best.engines.get(e)),
    )


def _would_do(other: Profile, now: Profile, peak: int, total: int, busy: float | None) -> bool:
    if other.memory_mib is None or other.size >= now.size or other.memory_mib >= total:
        return False
    if other.attributes != now.attributes or other.compute_slices > now.compute_slices:
        return False
    if busy is not None and busy * now.compute_slices > other.compute_slices:
        return False
    return peak <= (other.memory_mib - _DRIVER_MIB) * (1 - SPARE_SHARE)
