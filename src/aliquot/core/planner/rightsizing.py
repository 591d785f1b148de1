"""Would a smaller profile do? By memory that was seen in use over a long time, and by compute where it was measured."""

from __future__ import annotations

import msgspec

from aliquot.core.model.catalog import Family, Profile
from aliquot.core.model.inventory import Inventory
from aliquot.core.model.usage import Usage

MIN_WATCHED_S = 24 * 3600.0
"""Nothing is said of what was watched for less: a night is not a day."""
SPARE_SHARE = 0.05
"""How much of the smaller profile's memory must have been left over at the peak."""

_DRIVER_MIB = 64
"""What the driver keeps of an instance's memory for itself (captures: 12 to 25 MiB on idle ones), with room."""


class RightsizingHint(msgspec.Struct, frozen=True):
    """``profile`` is the smaller one, ``memory_mib`` what it has; ``slices`` its compute slices of the ``of`` that the
    instance has now. ``without`` are the kinds of engines that it has none of although the instance has some.
    ``watched_s`` is how long it was looked at. Whether work is as fast there nobody knows, and nothing here says so.
    """

    gpu: str
    instance: int
    now: str
    profile: str
    memory_mib: int
    peak_mib: int
    total_mib: int
    slices: int
    of: int
    watched_s: float
    peak_compute: float | None = None
    without: tuple[str, ...] = ()


def hints(
    inventory: Inventory, usage: tuple[Usage, ...], now: float, least_s: float = MIN_WATCHED_S
) -> tuple[RightsizingHint, ...]:
    """A hint for each GPU instance that has one, in the order of ``usage``."""
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
    """The profile with the least memory that would have held the peak with ``SPARE_SHARE`` to spare, the one with the
    most compute slices among several; only such that lack no attribute (``+me``, ``+gfx``) of the present one, and that
    have the multiprocessors which were seen busy. None where there is no such profile, where memory is unknown, where
    it was watched for less than ``least_s``, and where nobody was seen to use it: what an idle instance needs is not
    known.
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
