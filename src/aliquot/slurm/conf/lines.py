"""From a file's text to Slurm's lines: comments cut, continuations joined, escapes undone, and the way back kept.

Slurm does it in this order (its ``parse_config.c``): ``#`` ends a line unless a backslash escapes it; then a backslash
at the end joins the next line (so that no comment is continued); then each backslash gives way to what follows it.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

SPACE = " \t\n\v\f\r"
"""What C calls space. A no-break space, pasted from a web page, is none: it becomes part of a word."""


class LogicalLine(msgspec.Struct, frozen=True):
    """A joined line. ``at[n]`` is where the n-th character of ``text`` stands in the file's text; one more than there
    are characters, so that ends can be asked for, too. ``first`` and ``last`` are line numbers, from 1.
    """

    text: str
    at: tuple[int, ...]
    first: int
    last: int


def logical_lines(text: str) -> Iterator[LogicalLine]:
    """The lines of a file, blank ones left out."""
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
    """Python's own idea of a line's end has form feeds and more in it; C's has not."""
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
    """Where the backslash stands that joins the next line; spaces may follow it."""
    bare = line.rstrip(SPACE)
    slashes = len(bare) - len(bare.rstrip("\\"))
    return len(bare) - 1 if slashes % 2 else None


def _logical_line(characters: list[str], places: list[int], first: int, last: int) -> Iterator[LogicalLine]:
    """Escapes undone: each backslash gives way to the character behind it, whatever that is."""
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
