"""Markdown for tickets, as GitHub and GitLab read it. Names that others chose stay text: they become no markup,
mention, reference or link.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from aliquot.cli.framework import streams

_MARKUP = re.compile(r"([\\`*_\[\]<>|~$&{}])")
_REFERENCES = re.compile(r"([@#!%](?=[\w\"{])|www(?=\.)|:(?=//)|(?<=:)(?=[a-z+-][\w+-]*:))", re.IGNORECASE)
_BLOCK = re.compile(r"^(\s*)([-+=#]|\d+(?=[.)]))")
_HIDDEN = re.compile("[\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_BREAK = "\u200b"
"""A character of no width that ends what would be a mention or an address."""


def plain(text: str) -> str:
    """Return a text without colors, terminal control sequences, and characters that are invisible or change the
    direction.
    """
    return _HIDDEN.sub("?", streams.plain(_COLOUR.sub("", text)))


def prose(text: str) -> str:
    """Return a sentence as one line, in which every character is shown as it is."""
    line = " ".join(plain(text).split())
    line = _REFERENCES.sub(lambda match: f"{match.group()}{_BREAK}", line)
    line = _MARKUP.sub(r"\\\1", line)
    return _BLOCK.sub(lambda match: f"{match.group(1)}{_escape_start(match.group(2))}", line)


def _escape_start(start: str) -> str:
    """Escape the start of a list, a heading or a rule at the start of a line."""
    return f"{start}{_BREAK}" if start.isdigit() else f"\\{start}"


def code(text: str, *, cell: bool = False) -> str:
    """Return a name in a code span, which has no markup. In a table cell its bars are escaped."""
    line = " ".join(plain(text).split())
    if not line:
        return ""
    fence = "`" * (max((len(run) for run in re.findall("`+", line)), default=0) + 1)
    pad = " " if line[0] == "`" or line[-1] == "`" else ""
    span = f"{fence}{pad}{line}{pad}{fence}"
    return span.replace("|", "\\|") if cell else span


def block(text: str, language: str = "text") -> list[str]:
    """Return a code block: a picture, or commands to type."""
    lines = [plain(line) for line in _COLOUR.sub("", text).splitlines()]
    longest = max((len(run) for line in lines for run in re.findall("`{3,}", line)), default=2)
    fence = "`" * (longest + 1)
    return [f"{fence}{language}", *lines, fence]


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> list[str]:
    """Return a table of cells that are Markdown already; ``right`` are the columns of numbers. Return nothing without
    rows.
    """
    if not rows:
        return []
    rule = ["---:" if n in right else "---" for n in range(len(heads))]
    return [f"| {' | '.join(cells)} |" for cells in (heads, rule, *rows)]


def bullets(items: Sequence[str]) -> list[str]:
    """Return a list of items that are Markdown already."""
    return [f"- {item}" for item in items]


def page(*parts: Sequence[str]) -> str:
    """Join parts with an empty line between them, without empty parts."""
    return "\n\n".join("\n".join(part) for part in parts if part)
