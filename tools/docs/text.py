"""Pieces of Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """A table; bars and line ends inside a cell are kept from breaking it."""
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    return lines + [f"| {' | '.join(_cell(cell) for cell in row)} |" for row in rows]


def _cell(value: object) -> str:
    parts = str(value).replace("|", "\\|").replace("\n", " ").strip().split("`")
    return "`".join(part if n % 2 else part.replace("<", "&lt;") for n, part in enumerate(parts))


def first(doc: str | None) -> str:
    """The first paragraph of a docstring, in one line and without the marks of reStructuredText."""
    text = (doc or "").strip().split("\n\n")[0]
    return " ".join(text.split()).replace("``", "`")


def made(name: str, source: str) -> str:
    return f"<!-- Made by tools/build_docs.py from {source}: change it there. -->"
