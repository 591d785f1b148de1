"""The layout of nvidia-smi's tables: rows of a fixed width with each cell at its column. Columns
are those of captures.
"""

from __future__ import annotations

from typing import NamedTuple


class Cell(NamedTuple):
    """A text in a row. ``column`` is where it begins, or where it ends if ``right``."""

    column: int
    text: str
    right: bool = False


def left(column: int, value: object) -> Cell:
    return Cell(column, str(value))


def right(column: int, value: object) -> Cell:
    return Cell(column, str(value), True)


def row(width: int, *cells: Cell) -> str:
    """Return a row between two bars."""
    letters = [" "] * width
    letters[0] = letters[-1] = "|"
    for cell in cells:
        start = cell.column - len(cell.text) + 1 if cell.right else cell.column
        letters[start : start + len(cell.text)] = cell.text
    return "".join(letters[:width])


def rule(width: int, letter: str = "-", end: str = "+") -> str:
    return end + letter * (width - 2) + end


def head(width: int, *lines: str) -> list[str]:
    """Return the head of a table: lines after a bar, between two rules."""
    rows = [f"| {line}".ljust(width - 1) + "|" for line in lines]
    return [rule(width), *rows, rule(width, "=", "|")]


def fact(depth: int, name: str, value: object) -> str:
    """Return a line of a report: an indented name and its value."""
    return f"{' ' * 4 * depth}{name}".ljust(42) + f": {value}"
