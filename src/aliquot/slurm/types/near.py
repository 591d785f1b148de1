"""The type that a user means: from a request in any spelling, and near misses of a type that does not exist.

``deploy/slurm/job_submit.lua`` has the same order of near misses for types with a profile.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from aliquot.errors import BlockedError
from aliquot.slurm.gpus.type_facts import split_type

MOST = 3
_LONGEST = 128
_SIZE = re.compile(r"(?:(\d+)c\.)?(\d+)g\.(\d+)gb")
_OPTION = re.compile(r"--[a-z-]+=")
_COUNT = re.compile(r"\d+[kmgtp]?", re.IGNORECASE)


class NoTypeError(BlockedError):
    """The cluster has no node with a GRES type, and no layout on demand provides it."""

    code = "NO_SUCH_TYPE"


def plain_type(word: str) -> str:
    """Return the type in a request such as ``--gres=gpu:a100_3g.20gb:1`` or ``3g.20gb:2``; "" if it names none."""
    text = _OPTION.sub("", word.strip(), count=1)
    for prefix in ("gres/", "gres:", "gpu:", "gpu="):
        text = text.removeprefix(prefix)
    head, mark, count = max(text.rpartition(":"), text.rpartition("="), key=lambda parts: len(parts[0]))
    if mark and _COUNT.fullmatch(count):
        text = head
    return "" if text == "gpu" or text.isdecimal() else text


def match_types(word: str, known: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the types that a word names exactly, and the nearest others if it names none, each in order.

    A profile names the types of every model that has it. Case and the prefix ``nvidia_`` do not matter.
    """
    wanted = plain_type(word)[: _LONGEST + 1]
    if not wanted or len(wanted) > _LONGEST:
        return (), ()
    same = tuple(each for each in known if each and split_type(each) == split_type(wanted))
    model, profile = split_type(wanted)
    if not same and profile and not model:
        same = tuple(each for each in known if split_type(each)[1] == profile)
    return (same, ()) if same else ((), near_types(wanted, known))


def near_types(wanted: str, known: Sequence[str]) -> tuple[str, ...]:
    """Return at most ``MOST`` types in the order of their distance.

    For a type with a profile: by compute slices, then by the memory in its name. For another one: the types of that
    model, else those with a similar name.
    """
    from difflib import get_close_matches

    model, profile = split_type(wanted)
    if profile:
        sized = [each for each in known if split_type(each)[1]]
        return tuple(sorted(sized, key=lambda each: (*_distance(profile, split_type(each)[1]), each))[:MOST])
    parts = [each for each in known if split_type(each)[0] == model]
    return tuple(parts[:MOST] or get_close_matches(wanted.lower(), [each for each in known if each], n=MOST))


def _distance(wanted: str, profile: str) -> tuple[int, int]:
    (compute, memory), (others_compute, others_memory) = _size(wanted), _size(profile)
    return abs(compute - others_compute), abs(memory - others_memory)


def size_order(kind: str) -> tuple[bool, int, int, str]:
    """Return the sort key of types: whole GPUs, then MIG devices from large to small."""
    profile = split_type(kind)[1]
    compute, memory = _size(profile)
    return bool(profile), -compute, -memory, kind


def _size(profile: str) -> tuple[int, int]:
    """Return compute slices and the memory in a profile's name."""
    match = _SIZE.match(profile)
    return (int(match[1] or match[2]), int(match[3])) if match else (0, 0)
