"""Diagrams of boxes and arrows: a box stands in a column and a row, and arrows find their way between them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import msgspec
from tools.docs import svg

MARGIN, HEAD, LINE, TITLE, SMALL = 16, 20, 15, 13, 11
"""Pixels: around the picture, above the title of a box, of a line of text; and the sizes of its text."""
APART = 7
"""How far two arrows between the same boxes stand from the middle."""


class Box(msgspec.Struct, frozen=True):
    """A box in the grid. ``lines`` stand below the title; ``kind`` is a class of ``svg.STYLE``."""

    name: str
    column: float
    row: float
    title: str
    lines: tuple[str, ...] = ()
    kind: str = "box"

    @property
    def width(self) -> float:
        return max(svg.width_of(self.title, TITLE), *(svg.width_of(line, SMALL) for line in self.lines), 0) + 16

    @property
    def height(self) -> int:
        return HEAD + LINE * len(self.lines) + 10


class Arrow(msgspec.Struct, frozen=True):
    """An arrow between two boxes, with a word beside it. One with a ``informer`` leaves its box at the bottom."""

    start: str
    end: str
    label: str = ""
    informer: bool = False


class Flow(msgspec.Struct, frozen=True):
    """A diagram. ``gap`` is the space between two columns, ``row`` the distance of two rows."""

    label: str
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]
    gap: int
    row: int

    @property
    def width(self) -> float:
        """The width of every box."""
        return max(box.width for box in self.boxes)

    def draw(self) -> str:
        """Return the diagram as SVG."""
        places = {box.name: self._elbow(box) for box in self.boxes}
        by_name = {box.name: box for box in self.boxes}
        width = max(x for x, _ in places.values()) + self.width + MARGIN
        height = max(places[box.name][1] + box.height for box in self.boxes) + MARGIN
        ends = {(arrow.start, arrow.end) for arrow in self.arrows}
        parts = []
        for arrow in self.arrows:
            start, end = by_name[arrow.start], by_name[arrow.end]
            if arrow.informer:
                parts.append(self._elbow_arrow(start, end))
                continue
            parts += self._arrow(start, end, arrow.label, APART if (arrow.end, arrow.start) in ends else 0)
        for box in self.boxes:
            parts += self._box(box, *places[box.name])
        return svg.picture(round(width), round(height), self.label, parts)

    def _elbow(self, box: Box) -> tuple[float, float]:
        return MARGIN + box.column * (self.width + self.gap), MARGIN + box.row * self.row

    def _box(self, box: Box, x: float, y: float) -> list[str]:
        middle = x + self.width / 2
        lines = [
            svg.text(line, middle, y + HEAD + LINE * number, SMALL, "soft")
            for number, line in enumerate(box.lines, start=1)
        ]
        outline = svg.rect(box.kind, x, y, self.width, box.height, 6)
        return [outline, svg.text(box.title, middle, y + HEAD, TITLE), *lines]

    def _elbow_arrow(self, start: Box, end: Box) -> str:
        """Draw an arrow down from ``start`` and then to the nearer side of ``end``."""
        (x1, y1), (x2, y2) = self._elbow(start), self._elbow(end)
        last = x2 + self.width if x1 > x2 else x2
        return svg.arrow(f"M{x1 + self.width / 2:g} {y1 + start.height:g}V{y2 + end.height / 2:g}H{last:g}")

    def _arrow(self, start: Box, end: Box, label: str, apart: int) -> list[str]:
        """Draw a straight arrow within a column, a curve from side to side between two."""
        (x1, y1), (x2, y2) = self._elbow(start), self._elbow(end)
        if start.column == end.column:
            down = y2 > y1
            x = x1 + self.width / 2 + (apart if down else -apart)
            first, last = (y1 + start.height, y2) if down else (y1, y2 + end.height)
            words = svg.text(label, x + 6, (first + last) / 2 + 4, SMALL, "soft", anchor="start")
            return [svg.arrow(f"M{x:g} {first:g}V{last:g}"), *([words] if label else [])]
        right = x2 > x1
        first, last = (x1 + self.width, x2) if right else (x1, x2 + self.width)
        shift = -apart if right else apart
        heights = (start.height, end.height)
        height1, height2 = (min(heights),) * 2 if start.row == end.row else heights
        level1, level2 = y1 + height1 / 2 + shift, y2 + height2 / 2 + shift
        bend = (first + last) / 2
        words = svg.text(label, bend, (level1 + level2) / 2 - 5, SMALL, "soft")
        curve = f"M{first:g} {level1:g}C{bend:g} {level1:g} {bend:g} {level2:g} {last:g} {level2:g}"
        return [svg.arrow(curve), *([words] if label else [])]


def chain(names: Sequence[str], label: str = "") -> tuple[Arrow, ...]:
    """Return arrows from each box to the next."""
    return tuple(Arrow(start, end, label) for start, end in pairwise(names))
