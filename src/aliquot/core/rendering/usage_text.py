"""What pieces are used for, in words, numbers with units, and bars."""

from __future__ import annotations

from aliquot.core.model.usage import GPM, Usage
from aliquot.core.planner.rightsizing import RightsizingHint

NOT_MEASURED = "not measured"
_ENGINES = {"dec": "video decoder", "enc": "video encoder", "jpeg": "JPEG engine", "ofa": "optical flow engine"}


def span(seconds: float) -> str:
    """A time in its largest unit, rounded down: ``40 s``, ``12 min``, ``26 h``, ``3 d`` from two days on."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= (2 * length if unit == "d" else length):
            return f"{int(seconds // length)} {unit}"
    return f"{max(0, int(seconds))} s"


def gib(mib: int) -> str:
    """``3.1``: GiB with one digit."""
    return f"{mib / 1024:.1f}"


def memory(usage: Usage) -> str:
    """``3.1 of 19.6 GiB``, as far as it is known."""
    if usage.memory_used_mib is None or usage.memory_total_mib is None:
        return "not told"
    return f"{gib(usage.memory_used_mib)} of {gib(usage.memory_total_mib)} GiB"


def bar(usage: Usage, width: int = 12) -> str:
    """Memory in use as ``[##........]``, "" where it is not known. Anything in use shows as one mark at least."""
    if usage.memory_used_mib is None or not usage.memory_total_mib:
        return ""
    share = min(1.0, usage.memory_used_mib / usage.memory_total_mib)
    marks = max(round(share * width), 1 if usage.memory_used_mib else 0)
    return f"[{'#' * marks}{'.' * (width - marks)}]"


def compute(usage: Usage) -> str:
    """``37 % busy``, with where that is from unless it is multiprocessors."""
    if usage.compute is None:
        return NOT_MEASURED
    return f"{percent(usage.compute)} {'busy' if usage.source == GPM else f'of the time ({usage.source})'}"


def percent(share: float) -> str:
    """A share as whole percent; what is not nothing does not read as nothing."""
    return "<1 %" if 0 < share < 0.005 else f"{share * 100:.0f} %"


def idle(usage: Usage, now: float) -> str:
    """``idle for 6 h``; ``held`` or ``idle`` where that is all that is known."""
    if usage.watched_since <= 0:
        return ""
    if usage.idle_since is None:
        return "held"
    length = now - usage.idle_since
    return f"idle for {span(length)}" if length >= 60 else "idle"


def hint(found: RightsizingHint) -> str:
    """``used at most 3.1 of 19.6 GiB in 26 h; 1g.5gb (4.8 GiB) would hold that; compute: not measured``. About memory
    alone: how fast work would be there nobody knows.
    """
    used = f"used at most {gib(found.peak_mib)} of {gib(found.total_mib)} GiB in {span(found.watched_s)}"
    words = [used, f"{found.profile} ({gib(found.memory_mib)} GiB) would hold that"]
    words.append(f"compute: {_compute(found)}")
    if found.without:
        words.append(f"it has no {' and no '.join(_ENGINES[e] for e in found.without)}")
    return "; ".join(words)


def _compute(found: RightsizingHint) -> str:
    if found.peak_compute is None:
        return NOT_MEASURED
    return (
        f"at most {percent(found.peak_compute)} busy at a look, {found.profile} has {found.slices} of {found.of} slices"
    )
