"""Lists of names as Slurm writes them in files: ``n[1-4,7],login``. Device files are listed in the same way."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

LIMIT = 65_536
"""More names than a cluster has: a slip of the pen is no reason to fill the memory."""
_OUTSIDE = re.compile(r",(?![^\[]*\])")
_BRACKET = re.compile(r"([^\[\]]*)\[([^\[\]]*)\](.*)", re.DOTALL)


@lru_cache(maxsize=1024)
def expand(text: str) -> tuple[str, ...]:
    """Every name of a list, in its order. Raises ValueError with a sentence for a list that makes no sense."""
    names: list[str] = []
    for word in _OUTSIDE.split(text):
        for name in _word(word) if word else ():
            names.append(name)
            if len(names) > LIMIT:
                raise ValueError(f"{text} stands for more than {LIMIT} names")
    return tuple(names)


def _word(word: str) -> Iterator[str]:
    match = _BRACKET.fullmatch(word)
    if match is None:
        if "[" in word or "]" in word:
            raise ValueError(f"the brackets of {word} do not match")
        yield word
        return
    head, ranges, tail = match.groups()
    for number in _numbers(ranges, word):
        for rest in _word(tail) if tail else ("",):
            yield f"{head}{number}{rest}"


def _numbers(ranges: str, word: str) -> Iterator[str]:
    for part in ranges.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part, re.ASCII)
        if match is None:
            raise ValueError(f"{part!r} in {word} is no number and no range")
        first, last = match[1], match[2] or match[1]
        if int(last) < int(first):
            raise ValueError(f"the range {part} in {word} runs backwards")
        for number in range(int(first), int(last) + 1):
            yield f"{number:0{len(first)}}"
