"""Parser of GRES lists (``gpu:a100_3g.20gb:2(IDX:0-1),gpu:a100:1``) and of jobs' requests (``gres/gpu:a100:1``).

Slurm writes a job's request in three ways: ``gres:gpu:a100:1`` (22.05), ``gres/gpu:a100:1`` (23.11) and, per task,
``gres/gpu:a100=1`` (24.11). Source: ``--gres`` in sbatch(1), ``Gres`` in slurm.conf(5), and output of these releases.
"""

from __future__ import annotations

import re

from aliquot.errors import ConfigError
from aliquot.slurm.client.models import Gres

_COUNT = re.compile(r"(\d{1,18})([kmgtp]?)", re.IGNORECASE)
_INDEX = re.compile(r"(\d{1,4})(?:-(\d{1,4}))?")
_POWER = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_WORD = re.compile(r"[A-Za-z0-9_.+\-]+")


class GresError(ConfigError):
    """The text is not a GRES list."""

    code = "GRES"


def parse_configured(text: str) -> tuple[Gres, ...]:
    """Parse a node's ``Gres=`` as a user writes it: ``gpu:a100:1``, ``gpu:2``, ``gpu:a100``.

    Raises GresError for invalid text. Slurm itself accepts ``gpu:a100:x2`` silently: 22.05 then has a type ``x2``, and
    24.11 one GPU without a type.
    """
    return tuple(_configured(part, text) for part in parts(text))


def parse_listed(text: str | None) -> tuple[Gres, ...]:
    """Parse the GRES that Slurm prints for a node or a job, with ``(IDX:0-1)``; invalid entries are omitted."""
    found = [_listed(part) for part in parts("" if text in (None, "(null)", "N/A") else str(text))]
    return tuple(each for each in found if each is not None)


def requested_gpus(text: str | None) -> tuple[Gres, ...]:
    """Return the gpu entries of a job's TRES request; other TRES such as ``cpu=2`` are not GRES."""
    found = []
    for part in parts("" if text in (None, "(null)") else str(text)):
        head, mark, count = part.rpartition("=")
        plain = f"{head}:{count}" if mark else part
        for prefix in ("gres/", "gres:"):
            plain = plain.removeprefix(prefix)
        if plain == "gpu" or plain.startswith("gpu:"):
            each = _listed(plain)
            found += [each] if each else []
    return tuple(found)


def indices(text: str) -> tuple[int, ...]:
    """Parse a list of ordinals such as ``0-1,3``."""
    found: list[int] = []
    for part in text.split(","):
        match = _INDEX.fullmatch(part)
        if match:
            found += range(int(match[1]), int(match[2] or match[1]) + 1)
    return tuple(found)


def count_of(text: str) -> int | None:
    """Parse a count such as ``7`` or ``4K``. Returns None for other text."""
    match = _COUNT.fullmatch(text)
    return int(match[1]) * 1024 ** _POWER[match[2].lower()] if match else None


def parts(text: str) -> list[str]:
    """Split a list at the commas outside of parentheses, because index lists contain commas too."""
    return [part.strip() for part in re.split(r",(?![^()]*\))", text) if part.strip()]


def _configured(part: str, text: str) -> Gres:
    words = [w for w in re.sub(r"\([^()]*\)$", "", part).split(":") if w != "no_consume"]
    if not 1 <= len(words) <= 3 or not all(_WORD.fullmatch(w) for w in words):
        raise GresError(f"invalid GRES {part!r} in {text!r}: use name[:type][:count], for example gpu:a100_1g.5gb:7")
    if len(words) == 3:
        count = count_of(words[2])
        if count is None:
            raise GresError(
                f"invalid count {words[2]!r} in {part!r}: use a number",
                details=("Slurm would accept it, but count something else.",),
            )
        return Gres(words[0], words[1], count)
    if len(words) == 2:
        count = count_of(words[1])
        return Gres(words[0], "", count) if count is not None else Gres(words[0], words[1], 1)
    return Gres(words[0])


def _listed(part: str) -> Gres | None:
    plain, _, rest = part.partition("(")
    words = [w for w in plain.split(":") if w != "no_consume"]
    if not words or not words[0]:
        return None
    count = count_of(words[-1]) if len(words) > 1 else None
    kind = ":".join(words[1:] if count is None else words[1:-1])
    index = rest.partition("IDX:")[2].partition(")")[0] if "IDX:" in rest else ""
    return Gres(words[0], kind, 1 if count is None else count, indices(index))
