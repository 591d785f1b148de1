"""Conversion between Slurm's host lists, such as ``n[1-4,7],m-[01-03]``, and names.

Source: "Host list expressions" in slurm.conf(5); ``scontrol show hostnames`` and ``hostlist`` convert the same way.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable

from aliquot.errors import ConfigError

MOST = 65536
"""Slurm's own limit (MAX_RANGE): a longer range is a typing error."""
_RANGE = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?")
_NAME = re.compile(r"(.*?)(\d{0,18})", re.DOTALL)


class HostlistError(ConfigError):
    """The text is not a host list."""

    code = "HOSTLIST"


def expand(text: str) -> tuple[str, ...]:
    """Return the names of a list in its order, duplicates included. Raises HostlistError."""
    return tuple(name for part in split(text) for name in _expanded(part))


def split(text: str) -> tuple[str, ...]:
    """Split a list at its outer commas: ``n[1,3],m`` becomes ``n[1,3]`` and ``m``. Raises HostlistError."""
    parts, depth, begin = [], 0, 0
    for at, sign in enumerate(text):
        depth += (sign == "[") - (sign == "]")
        if depth not in (0, 1):
            raise HostlistError(f"invalid host list {text!r}: its brackets do not match")
        if sign == "," and not depth:
            parts.append(text[begin:at])
            begin = at + 1
    if depth:
        raise HostlistError(f"invalid host list {text!r}: a bracket is not closed")
    return tuple(part.strip() for part in (*parts, text[begin:]) if part.strip())


def compress(names: Iterable[str]) -> str:
    """Return the shortest host list for some names, sorted and without duplicates: ``n[1-2],m``.

    Only the number at the end of a name is folded into a range.
    """
    groups: dict[str, set[str]] = {}
    for name in names:
        found = _NAME.fullmatch(name)
        assert found is not None  # any text matches
        groups.setdefault(found[1], set()).add(found[2])
    return ",".join(_folded(stem, groups[stem]) for stem in sorted(groups))


def _folded(stem: str, numbers: set[str]) -> str:
    alone = [stem] if "" in numbers else []
    runs: list[list[str]] = []
    for each in sorted(numbers - {""}, key=lambda n: (int(n), len(n))):
        if runs and each == _after(runs[-1]):
            runs[-1].append(each)
        else:
            runs.append([each])
    ranges = [run[0] if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
    if len(ranges) == 1 and "-" not in ranges[0]:
        return ",".join([*alone, stem + ranges[0]])
    return ",".join([*alone, *([f"{stem}[{','.join(ranges)}]"] if ranges else [])])


def _after(run: list[str]) -> str:
    """Return the number that would continue a run, padded to the width of its first one."""
    return str(int(run[-1]) + 1).zfill(len(run[0]))


def _expanded(part: str) -> list[str]:
    parts = re.split(r"\[([^]]*)\]", part)
    choices = [_numbers(text, part) if at % 2 else [text] for at, text in enumerate(parts)]
    total = 1
    for each in choices:
        total *= len(each)
    if total > MOST:
        raise HostlistError(f"{part!r} expands to {total} hosts: Slurm accepts at most {MOST}")
    return ["".join(each) for each in itertools.product(*choices)]


def _numbers(ranges: str, part: str) -> list[str]:
    found: list[str] = []
    for each in ranges.split(","):
        match = _RANGE.fullmatch(each.strip())
        if match is None:
            raise HostlistError(f"invalid host list {part!r}: {each!r} is neither a number nor a range")
        low, high = match[1], match[2] or match[1]
        if int(high) < int(low) or int(high) - int(low) >= MOST:
            raise HostlistError(f"invalid host list {part!r}: the range {each!r} is empty or too long")
        found += [str(n).zfill(len(low)) for n in range(int(low), int(high) + 1)]
    return found
