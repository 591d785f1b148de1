"""Text formatting for pages: safe names, numbers with units, durations, sentences."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Sequence
from urllib.parse import quote, urlencode

from aliquot.core.model.inventory import Gpu, GpuInstance
from aliquot.core.model.placement import Placement
from aliquot.core.model.plan import Drift
from aliquot.core.model.structured_text import Part, TextPart, parts_of
from aliquot.core.rendering import action_text as action_texts

UNKNOWN = "not measured"
"""Shown instead of a value that is not available. Values are never made up."""


def clean(text: str, most: int = 120) -> str:
    """Make an untrusted name displayable: no control or bidirectional characters, at most ``most`` characters."""
    shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text[: most + 1])
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"


def key(name: str) -> str:
    """Return a hash of a name, for the ids of elements. Names may contain any characters."""
    return hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:12]


def path(*parts: str) -> str:
    """Build a URL path of the dashboard: ``path("nodes", name)``."""
    return "/" + "/".join(quote(part, safe=":", errors="replace") for part in parts)


def number(count: int, thing: str, things: str = "") -> str:
    """Format a count: ``1 GPU``, ``3 GPUs``, ``no GPUs``."""
    return f"{count or 'no'} {thing if count == 1 else things or thing + 's'}"


def listed(parts: Iterable[str]) -> str:
    """Join parts as ``a, b and c``."""
    found = list(parts)
    return " and ".join(filter(None, (", ".join(found[:-1]), *found[-1:])))


def memory(mib: int | None) -> str:
    """Format memory as ``4.8 GiB``, or in MiB below 1 GiB."""
    if mib is None:
        return UNKNOWN
    return f"{mib:,} MiB".replace(",", " ") if mib < 1024 else f"{mib / 1024:.1f}".removesuffix(".0") + " GiB"


def percent(share: float | None) -> str:
    return UNKNOWN if share is None else f"{100 * share:.0f} % busy"


def now() -> float:
    """Return the wall time in seconds."""
    return time.time()


def span(seconds: float) -> str:
    """Format a duration with one unit, rounded down: ``12 s``, ``3 min``, ``5 h``, ``4 days``."""
    whole = max(0, int(seconds))
    for size, unit in ((86400, "day"), (3600, "h"), (60, "min")):
        if whole >= size:
            count = whole // size
            return f"{count} {unit}" + ("s" if unit == "day" and count > 1 else "")
    return f"{whole} s"


def took(seconds: float) -> str:
    """Format how long something took: ``0.3 s``, ``2.5 s``; from ten seconds on as ``span``."""
    if seconds >= 10:
        return span(seconds)
    return f"{seconds:.1f} s" if seconds >= 0.05 else "less than 0.1 s"


def moment(at: float) -> str:
    """Format a time in UTC; "" for 0."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at)) if at else ""


def iso_moment(at: float) -> str:
    """Format a time for ``<time datetime>``; "" for 0."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at)) if at else ""


def ranges(numbers: Sequence[int]) -> str:
    """Format sorted numbers as ranges: ``0-2, 5`` for 0, 1, 2, 5."""
    parts: list[list[int]] = []
    for n in numbers:
        if parts and n == parts[-1][1] + 1:
            parts[-1][1] = n
        else:
            parts.append([n, n])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def slices(numbers: Sequence[int]) -> str:
    """Format memory slices: ``slice 7``, ``slices 0-2, 5``."""
    return f"slice{'' if len(numbers) == 1 else 's'} {ranges(numbers)}"


def place(where: Placement) -> str:
    """Format a placement: ``slices 4-7``."""
    return slices(range(where.start, where.start + where.size))


def drift(each: Drift) -> str:
    """Describe a difference. For an instance that should not be there, name its slices."""
    extra = _extra(each)
    return clean(f"GPU {each.gpu}: {extra}" if extra else each.message, 300)


def drift_sentence(each: Drift) -> str:
    """Describe a difference of a GPU that the page names beside it."""
    return clean(_extra(each) or each.sentence, 300)


def _extra(each: Drift) -> str:
    extra = each.instance if each.kind == "extra" else None
    if not extra or not extra.place:
        return ""
    return f"{extra.profile} on {place(extra.place)} ({extra.about}) should not be there"


def sentence(text: str, most: int) -> str:
    """Format a text, with placements as slices (``3g.20gb on slices 4-7``) if they are values in it."""
    return clean("".join(map(_part, parts_of(text))), most)


def _part(part: Part) -> str:
    match part:
        case Placement():
            return place(part)
        case str() | TextPart():
            return str(part)
        case profile, where:
            return f"{profile} on {place(where)}"


def gpu_name(gpu: Gpu) -> str:
    """Return ``GPU 0``. Pages show the PCI address next to it where the identity matters."""
    return f"GPU {gpu.index}"


def product(gpu: Gpu) -> str:
    return clean(gpu.product.removeprefix("NVIDIA ")) or "unknown product"


def state(instance: GpuInstance) -> str:
    """Describe the use of an instance: ``held by process 4711 (python)`` or ``idle``."""
    return clean(action_texts.state(instance))


def idle(since: float | None, at: float) -> str:
    """Format ``idle for 3 h``; ``idle`` if the duration is unknown."""
    return "idle" if since is None else f"idle for {span(at - since)}"


def query(parameters: dict[str, str]) -> str:
    """Encode a URL query without empty parameters."""
    return urlencode({k: v for k, v in parameters.items() if v}, errors="replace")
