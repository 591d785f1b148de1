"""The usage of GPUs and instances in words, numbers with units, and bars."""

from __future__ import annotations

from aliquot.core.model.usage import GPM, Usage
from aliquot.core.model.vgpu_usage import VgpuUsage
from aliquot.core.planner.rightsizing import RightsizingHint

NOT_MEASURED = "not measured"
_ENGINES = {"dec": "video decoder", "enc": "video encoder", "jpeg": "JPEG engine", "ofa": "optical flow engine"}


def span(seconds: float) -> str:
    """Format a time in its largest unit, rounded down: ``40 s``, ``12 min``, ``26 h``, ``3 d`` from two days on."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= (2 * length if unit == "d" else length):
            return f"{int(seconds // length)} {unit}"
    return f"{max(0, int(seconds))} s"


def gib(mib: int) -> str:
    """Format MiB as GiB with one decimal: ``3.1``."""
    return f"{mib / 1024:.1f}"


def memory(usage: Usage) -> str:
    """Return ``3.1 of 19.6 GiB``, or ``not reported`` if one of them is unknown."""
    if usage.memory_used_mib is None or usage.memory_total_mib is None:
        return "not reported"
    return f"{gib(usage.memory_used_mib)} of {gib(usage.memory_total_mib)} GiB"


def bar(usage: Usage, width: int = 12) -> str:
    """Draw the memory in use as ``[##........]``, "" if it is unknown. Any use shows as one mark at least."""
    if usage.memory_used_mib is None or not usage.memory_total_mib:
        return ""
    share = min(1.0, usage.memory_used_mib / usage.memory_total_mib)
    marks = max(round(share * width), 1 if usage.memory_used_mib else 0)
    return f"[{'#' * marks}{'.' * (width - marks)}]"


def compute(usage: Usage) -> str:
    """Return ``37 % busy``, with the source unless it is multiprocessor activity."""
    if usage.compute is None:
        return NOT_MEASURED
    return f"{percent(usage.compute)} {'busy' if usage.source == GPM else f'of the time ({usage.source})'}"


def percent(share: float) -> str:
    """Format a share as whole percent. A small share is ``<1 %``, never ``0 %``."""
    return "<1 %" if 0 < share < 0.005 else f"{share * 100:.0f} %"


def idle(usage: Usage, now: float) -> str:
    """Return ``idle for 6 h``, or only ``held`` or ``idle`` if the duration is unknown or short."""
    if usage.watched_since <= 0:
        return ""
    if usage.idle_since is None:
        return "held"
    length = now - usage.idle_since
    return f"idle for {span(length)}" if length >= 60 else "idle"


def hint(found: RightsizingHint) -> str:
    """Return ``used at most 3.1 of 19.6 GiB in 26 h; 1g.5gb (4.8 GiB) would hold that; compute: not measured``.

    The hint is only about memory: how fast the work would run there is unknown.
    """
    used = f"used at most {gib(found.peak_mib)} of {gib(found.total_mib)} GiB in {span(found.watched_s)}"
    words = [used, f"{found.profile} ({gib(found.memory_mib)} GiB) would hold that"]
    words.append(f"compute: {_compute(found)}")
    if found.without:
        words.append(f"it has no {' and no '.join(_ENGINES[e] for e in found.without)}")
    return "; ".join(words)


def vgpu_shares(usage: VgpuUsage) -> str:
    """Return ``37 % busy, encoder 4 %``: of the whole GPU. An idle video engine is left out."""
    if usage.compute is None:
        return NOT_MEASURED
    engines = (("encoder", usage.encoder), ("decoder", usage.decoder))
    parts = [f"{name} {percent(share)}" for name, share in engines if share]
    return ", ".join((f"{percent(usage.compute)} busy", *parts))


def license_state(usage: VgpuUsage) -> str:
    """Return whether the guest has a license, in words; "" if the driver does not know it."""
    return {
        "": "",
        "uninitialized": "no guest driver yet",
        "unlicensed-unrestricted": "unlicensed, not reduced yet",
        "unlicensed-restricted": "unlicensed, reduced",
    }.get(usage.license, usage.license)


def _compute(found: RightsizingHint) -> str:
    if found.peak_compute is None:
        return NOT_MEASURED
    return (
        f"at most {percent(found.peak_compute)} busy in a sample, "
        f"{found.profile} has {found.slices} of {found.of} slices"
    )
