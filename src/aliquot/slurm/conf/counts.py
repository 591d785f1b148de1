"""Counts of ``Gres=`` in slurm.conf as slurmctld counts them: ``gpu:a100:2,gpu:a100_1g.5gb:7(S:0-1)``.

slurmctld rarely reads a typing error as intended (its ``gres.c``, 22.05 to 26.05):

- A last part that begins with a letter is another *type* with count 1: ``gpu:a100:x2`` is one ``a100`` and one ``x2``.
- A type that begins with a digit and has no count (``gpu:1g.5gb``) is an invalid count, and all GPUs after it are lost.
- ``gpu:1g`` is 2^30 GPUs.
"""

from __future__ import annotations

import re

import msgspec

_SUFFIX = re.compile(r"([kmgtp])(i?b)?", re.IGNORECASE)
_POWERS = {letter: n for n, letter in enumerate("kmgtp", start=1)}


class GresEntry(msgspec.Struct, frozen=True):
    """An entry as its author meant it."""

    text: str
    name: str
    type: str = ""
    count: int = 1
    error: str = ""
    """Why Slurm reads it differently, or not at all; "" for a valid entry."""


def entries(value: str, name: str = "gpu") -> tuple[GresEntry, ...]:
    """Return the entries of one kind of GRES. Slurm's names are case-sensitive: ``GPU`` is another kind."""
    words = [word for word in value.split(",") if word.partition(":")[0].partition("(")[0] == name]
    return tuple(_entry(word) for word in words)


def _entry(word: str) -> GresEntry:
    bare = word.partition("(")[0]
    name, *parts = bare.split(":")
    parts = [part for part in parts if part != "no_consume"]
    if not parts:
        return GresEntry(word, name)
    *kinds, last = parts
    if not last[:1].isdigit():
        return _uncounted(word, name, parts)
    count, error = _count(last)
    if error and not kinds:
        sentence = f"the type {last} needs a count after it (gpu:{last}:1): Slurm reads a part that begins with a digit"
        error = f"{sentence} as a count, and loses this GRES and those after it"
        return GresEntry(word, name, last, 1, error)
    if not error and not kinds and not last.isdigit():
        error = f"Slurm reads {last} as the number {count}"
    if not error and len(kinds) > 1:
        error = f"it has {len(kinds)} types: Slurm counts it once for each"
    return GresEntry(word, name, kinds[0] if kinds else "", count, error)


def _uncounted(word: str, name: str, parts: list[str]) -> GresEntry:
    """Return an entry without a count, which counts 1. Two parts without a count are two types; one is an error."""
    if len(parts) == 1 and parts[0]:
        return GresEntry(word, name, parts[0])
    slip = repr(parts[-1])
    return GresEntry(word, name, parts[0], 1, f"{slip} is not a number: Slurm reads it as another type with count 1")


def _count(text: str) -> tuple[int, str]:
    digits = re.match(r"\d{1,18}", text, re.ASCII)
    number, suffix = (int(digits[0]), text[digits.end() :]) if digits else (0, text)
    if not suffix:
        return number, ""
    match = _SUFFIX.fullmatch(suffix)
    if digits is None or match is None:
        return 1, f"{text!r} is not a number: Slurm loses this GRES and those after it"
    base = 1000 if (match[2] or "").lower() == "b" else 1024
    return int(number * base ** _POWERS[match[1].lower()]), ""
