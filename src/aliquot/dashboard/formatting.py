"""Words and numbers for people: names that cannot break a page, numbers with units, ages, sentences."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterable, Sequence
from urllib.parse import quote, urlencode

from aliquot.core.model.inventory import Gpu, GpuInstance
from aliquot.core.model.placement import Placement
from aliquot.core.rendering import action_text as acts

_PLACE = re.compile(r"( at )(\d{1,3}):(\d{1,3})\b")
_BARE = re.compile(r"()\b(\d{1,2}):(\d{1,2})(?= by )")
_MOVED = re.compile(r"(\bmove[sd] (?:to|from) )(\d{1,2}):(\d{1,2})\b")

UNKNOWN = "not measured"
"""Where nobody can tell a figure: it is never made up."""


def clean(text: str, most: int = 120) -> str:
    """A name from outside for showing: no control characters, no marks that turn the direction of text, not longer than
    ``most``.
    """
    shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text[: most + 1])
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"


def key(name: str) -> str:
    """A name as a part of an element's id: equal names give equal ones, whatever is in them."""
    return hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:12]


def path(*parts: str) -> str:
    """An address on this page: ``path("nodes", name)``."""
    return "/" + "/".join(quote(part, safe=":", errors="replace") for part in parts)


def number(count: int, thing: str, things: str = "") -> str:
    """``1 GPU``, ``3 GPUs``, ``no GPUs``."""
    return f"{count or 'no'} {thing if count == 1 else things or thing + 's'}"


def listed(parts: Iterable[str]) -> str:
    """``a, b and c``."""
    found = list(parts)
    return " and ".join(filter(None, (", ".join(found[:-1]), *found[-1:])))


def memory(mib: int | None) -> str:
    """``4.8 GiB``; small ones in MiB."""
    if mib is None:
        return UNKNOWN
    return f"{mib:,} MiB".replace(",", " ") if mib < 1024 else f"{mib / 1024:.1f}".removesuffix(".0") + " GiB"


def percent(share: float | None) -> str:
    return UNKNOWN if share is None else f"{100 * share:.0f} % busy"


def now() -> float:
    """Seconds of wall time."""
    return time.time()


def span(seconds: float) -> str:
    """``12 s``, ``3 min``, ``5 h``, ``4 days``: rounded down, one unit."""
    whole = max(0, int(seconds))
    for size, unit in ((86400, "day"), (3600, "h"), (60, "min")):
        if whole >= size:
            count = whole // size
            return f"{count} {unit}" + ("s" if unit == "day" and count > 1 else "")
    return f"{whole} s"


def took(seconds: float) -> str:
    """How long something lasted: ``0.3 s``, ``2.5 s``; from ten seconds on as ``span``."""
    if seconds >= 10:
        return span(seconds)
    return f"{seconds:.1f} s" if seconds >= 0.05 else "less than 0.1 s"


def moment(at: float) -> str:
    """An instant as people write it, in UTC; empty for 0."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at)) if at else ""


def iso_moment(at: float) -> str:
    """An instant for ``<time datetime>``."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at)) if at else ""


def ranges(numbers: Sequence[int]) -> str:
    """``0-2, 5`` for 0, 1, 2, 5."""
    parts: list[list[int]] = []
    for n in numbers:
        if parts and n == parts[-1][1] + 1:
            parts[-1][1] = n
        else:
            parts.append([n, n])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def slices(numbers: Sequence[int]) -> str:
    """``slice 7``, ``slices 0-2, 5``."""
    return f"slice{'' if len(numbers) == 1 else 's'} {ranges(numbers)}"


def place(where: Placement) -> str:
    """``slices 4-7``."""
    return slices(range(where.start, where.start + where.size))


def placed(text: str) -> str:
    """``3g.20gb at 4:4`` as people say it: ``3g.20gb on slices 4-7``."""

    def to_words(found: re.Match[str]) -> str:
        return f"{found[1]}{place(Placement(int(found[2]), int(found[3])))}"

    return _MOVED.sub(
        to_words, _BARE.sub(to_words, _PLACE.sub(lambda found: to_words(found).replace(" at ", " on "), text))
    )


def gpu_name(gpu: Gpu) -> str:
    """``GPU 0``. The address stands beside it wherever it matters."""
    return f"GPU {gpu.index}"


def product(gpu: Gpu) -> str:
    return clean(gpu.product.removeprefix("NVIDIA ")) or "unknown product"


def state(instance: GpuInstance) -> str:
    """``held by process 4711 (python)`` or ``idle``."""
    return clean(acts.state(instance))


def idle(since: float | None, at: float) -> str:
    """``idle for 3 h``; ``idle`` where nobody watched."""
    return "idle" if since is None else f"idle for {span(at - since)}"


def query(parameters: dict[str, str]) -> str:
    """The query of an address, without what is empty."""
    return urlencode({k: v for k, v in parameters.items() if v}, errors="replace")
