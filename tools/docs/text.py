"""Helpers that write Markdown."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence

WIDTH = 100


def joined(lines: Iterable[str]) -> str:
    """Return a page: its lines, with paragraphs wrapped. Keeps tables, headings and code blocks."""
    return "\n".join(_wrapped(lines)) + "\n"


def _wrapped(lines: Iterable[str]) -> Iterator[str]:
    code, paragraph = False, ""
    for line in lines:
        code ^= line.startswith("```")
        kept = code or not line or line.startswith(("|", "#", "<!--", "```"))
        if kept or line.lstrip().startswith("- "):
            yield from _filled(paragraph)
            paragraph = ""
        if kept:
            yield line
        else:
            paragraph = f"{paragraph} {line}" if paragraph else line
    yield from _filled(paragraph)


def _filled(paragraph: str) -> list[str]:
    text = paragraph.lstrip()
    indent = " " * (len(paragraph) - len(text) + 2 * text.startswith("- "))
    return textwrap.wrap(paragraph, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Return a table; bars and line ends inside a cell are escaped."""
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    return lines + [f"| {' | '.join(_cell(cell) for cell in row)} |" for row in rows]


def _cell(value: object) -> str:
    parts = str(value).replace("|", "\\|").replace("\n", " ").strip().split("`")
    return "`".join(part if n % 2 else part.replace("<", "&lt;") for n, part in enumerate(parts))


def first(doc: str | None) -> str:
    """Return the first paragraph of a docstring, in one line and without the marks of reStructuredText."""
    text = (doc or "").strip().split("\n\n")[0]
    return " ".join(text.split()).replace("``", "`")


def made(name: str, source: str) -> str:
    return f"<!-- Made by tools/build_docs.py from {source}: change it there. -->"
