"""Logical lines of a Slurm file: comments removed, continuations joined, escapes resolved, and positions recorded.

Slurm works in this order (its ``parse_config.c``). A ``#`` ends a line unless a backslash escapes it. Then a backslash
at the end joins the next line, so that comments are never continued. Then each backslash is replaced by what follows.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

SPACE = " \t\n\v\f\r"
"""White space in C. A no-break space, pasted from a web page, is not white space: it becomes part of a word."""


class LogicalLine(msgspec.Struct, frozen=True):
    """A line with its continuations."""

    text: str
    at: tuple[int, ...]
    """The offset of each character of ``text`` in the file, and one more for the end."""
    first: int
    """The number of its first line, from 1."""
    last: int


def logical_lines(text: str) -> Iterator[LogicalLine]:
    """Yield the lines of a file that are not blank."""
    characters: list[str] = []
    places: list[int] = []
    first, offset, number = 1, 0, 0
    for number, raw in enumerate(_lines(text), start=1):
        content = _uncommented(raw.rstrip("\r\n"))
        continued = _continuation(content)
        content = content if continued is None else content[:continued]
        characters += content
        places += range(offset, offset + len(content))
        offset += len(raw)
        if continued is None:
            yield from _logical_line(characters, places, first, number)
            characters, places, first = [], [], number + 1
    yield from _logical_line(characters, places, first, number)


def _lines(text: str) -> Iterator[str]:
    """Yield lines that end as in C: Python's ``splitlines`` also splits at form feeds and others."""
    begin = 0
    while begin < len(text):
        end = text.find("\n", begin) + 1 or len(text)
        yield text[begin:end]
        begin = end


def _uncommented(line: str) -> str:
    if "\\" not in line:
        return line.partition("#")[0]
    slashes = 0
    for n, character in enumerate(line):
        if character == "#" and slashes % 2 == 0:
            return line[:n]
        slashes = slashes + 1 if character == "\\" else 0
    return line


def _continuation(line: str) -> int | None:
    """Return the offset of the backslash that joins the next line, or None. Spaces may follow it."""
    bare = line.rstrip(SPACE)
    slashes = len(bare) - len(bare.rstrip("\\"))
    return len(bare) - 1 if slashes % 2 else None


def _logical_line(characters: list[str], places: list[int], first: int, last: int) -> Iterator[LogicalLine]:
    """Yield the line with its escapes resolved, unless it is blank: any character may follow a backslash."""
    if "\\" not in characters:
        text, at = characters, places
    else:
        text, at = _unescaped(characters, places)
    joined = "".join(text)
    if joined.strip(SPACE):
        yield LogicalLine(joined, (*at, places[-1] + 1), first, last)


def _unescaped(characters: list[str], places: list[int]) -> tuple[list[str], list[int]]:
    text: list[str] = []
    at: list[int] = []
    n = 0
    while n < len(characters):
        n += characters[n] == "\\" and n + 1 < len(characters)
        text.append(characters[n])
        at.append(places[n])
        n += 1
    return text, at
