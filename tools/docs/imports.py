"""docs/pictures/imports.svg: the packages, each above those that it imports, with arrows.

An import that a longer path of arrows implies has no arrow of its own.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tools.docs import svg

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "aliquot"
WIDTH, ROW, BOX_WIDTH, BOX_HEIGHT, MARGIN = 860, 76, 160, 40, 16
"""Pixels. A row is as high as a box and the space for arrows below it."""
PURPOSE = {
    "cli": "verbs, tables, views",
    "dashboard": "the web page",
    "kubernetes": "agents, controller, webhooks",
    "slurm": "node changes, controller",
    "metrics": "exporters",
    "node": "opens a host's GPUs",
    "cdi": "CDI specifications",
    "containers": "Docker, Podman",
    "sim": "the simulated node",
    "hardware": "NVML, sysfs, state on disk",
    "libvirt": "guests' devices",
    "core": "model, planner, engine",
    "foundation": "files, locks, processes",
    "errors": "one hierarchy",
}


def page() -> str:
    """Return the picture as SVG."""
    edges = reduced(imports())
    rows = layers(edges)
    places = dict(_places(rows))
    arrows = [_arrow(places[upper], places[lower]) for upper, lower in sorted(edges)]
    boxes = [_box(name, *place) for name, place in places.items()]
    height = 2 * MARGIN + (len(rows) - 1) * ROW + BOX_HEIGHT
    return svg.picture(WIDTH, height, "Packages of Aliquot and what they import", [*arrows, *boxes])


def layers(edges: set[tuple[str, str]]) -> list[list[str]]:
    """Return the packages from the top to the bottom: each as low as its imports let it stand."""

    def depth(name: str) -> int:
        return max((depth(lower) + 1 for upper, lower in edges if upper == name), default=0)

    rows: dict[int, list[str]] = {}
    for name in PURPOSE:
        rows.setdefault(depth(name), []).append(name)
    return [rows[number] for number in sorted(rows, reverse=True)]


def imports() -> set[tuple[str, str]]:
    """Return (importer, imported) for packages of the tree."""
    found = set()
    for path in sorted(SOURCE.rglob("*.py")):
        package = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        for name in _modules(ast.parse(path.read_text())):
            other = name.split(".")[1] if name.startswith("aliquot.") else package
            if other != package and other in PURPOSE and package in PURPOSE:
                found.add((package, other))
    return found


def reduced(edges: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return the edges that no longer path implies. The import linter ensures that the graph has no cycle."""

    def reaches(start: str, end: str) -> bool:
        return any(later == end or reaches(later, end) for first, later in edges if first == start)

    return {
        (upper, lower)
        for upper, lower in edges
        if not any(first == upper and later != lower and reaches(later, lower) for first, later in edges)
    }


def _modules(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{each.name}" for each in node.names)
        elif isinstance(node, ast.Import):
            yield from (each.name for each in node.names)


def _places(rows: list[list[str]]) -> Iterator[tuple[str, tuple[int, int]]]:
    """Return the middle of each box."""
    for number, row in enumerate(rows):
        step = WIDTH // len(row)
        for place, name in enumerate(row):
            yield name, (place * step + step // 2, MARGIN + BOX_HEIGHT // 2 + number * ROW)


def _arrow(upper: tuple[int, int], lower: tuple[int, int]) -> str:
    (x1, y1), (x2, y2) = upper, lower
    y1, y2 = y1 + BOX_HEIGHT // 2, y2 - BOX_HEIGHT // 2
    bend = (y2 - y1) // 2
    return svg.arrow(f"M{x1} {y1}C{x1} {y1 + bend} {x2} {y2 - bend} {x2} {y2}")


def _box(name: str, x: int, y: int) -> str:
    outline = svg.rect("box", x - BOX_WIDTH / 2, y - BOX_HEIGHT / 2, BOX_WIDTH, BOX_HEIGHT, 6)
    return outline + svg.text(name, x, y - 2, 14) + svg.text(PURPOSE[name], x, y + 13, 10, "soft")
