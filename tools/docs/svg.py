"""Draws pictures as SVG: one style for all of them, which follows the light or dark mode of the reader."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

STYLE: dict[str, tuple[str, str]] = {
    "ground": ("fill:#ffffff", "fill:#1b1f26"),
    "ink": ("fill:#1d2b36", "fill:#e8edf2"),
    "soft": ("fill:#44525f", "fill:#b4c0cb"),
    "line": ("fill:none;stroke:#5a6b7b", "fill:none;stroke:#93a3b3"),
    "head": ("fill:#5a6b7b", "fill:#93a3b3"),
    "box": ("fill:#eef3e6;stroke:#76b900", "fill:#25311a;stroke:#76b900"),
    "plain": ("fill:#f2f4f7;stroke:#8a99a8", "fill:#272d36;stroke:#7b8a99"),
    "bad": ("fill:#fdecea;stroke:#c2453a", "fill:#3d2220;stroke:#e0756b"),
    "free": ("fill:#ffffff;stroke:#b3bec9", "fill:#1b1f26;stroke:#55626f"),
    "a": ("fill:#cfe8a3;stroke:#5f9400", "fill:#3f5a12;stroke:#8fc93a"),
    "b": ("fill:#bcdcf5;stroke:#2b76b3", "fill:#17415f;stroke:#5aa7de"),
    "c": ("fill:#f7d9a8;stroke:#b5740f", "fill:#5a3d0d;stroke:#e0a94a"),
    "d": ("fill:#e1ccf0;stroke:#7d4aa3", "fill:#432a57;stroke:#b287d4"),
}
"""What each class looks like on a light and on a dark page."""
LETTERS = "abcd"
"""The classes that tell instances apart."""
CHARACTER = 0.64
"""The width of a character, in font sizes: that of wide sans-serif fonts."""


def picture(width: int, height: int, label: str, parts: Iterable[str]) -> str:
    """Return a whole picture. ``label`` is what a screen reader says instead of it."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img" '
        f'aria-label="{escape(label)}" font-family="sans-serif">'
    )
    light, dark = (" ".join(f".{name}{{{modes[n]}}}" for name, modes in STYLE.items()) for n in (0, 1))
    marker = (
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" orient="auto">'
        '<path class="head" d="M0 0 8 4 0 8z"/></marker></defs>'
    )
    style = f"<style>{light} @media (prefers-color-scheme: dark){{{dark}}}</style>"
    ground = f'<rect class="ground" width="{width}" height="{height}"/>'
    return "\n".join([head, style, marker, ground, *parts, "</svg>", ""])


def rect(kind: str, x: float, y: float, width: float, height: float, radius: int = 0) -> str:
    """Return a rectangle in the style ``kind``."""
    round_ = f' rx="{radius}"' if radius else ""
    return f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"{round_}/>'


def text(words: str, x: float, y: float, size: int = 12, kind: str = "ink", *, anchor: str = "middle") -> str:
    """Return one line of text; ``y`` is its base line."""
    weight = ' font-weight="600"' if kind == "ink" and size > 12 else ""
    where = f'x="{x:g}" y="{y:g}" text-anchor="{anchor}" font-size="{size}"'
    return f'<text class="{kind}" {where}{weight}>{escape(words)}</text>'


def arrow(path: str) -> str:
    """Return a line along ``path`` with a head at its end."""
    return f'<path class="line" d="{path}" stroke-width="1.4" marker-end="url(#head)"/>'


def width_of(words: str, size: int) -> float:
    """Return how wide a text may become."""
    return len(words) * size * CHARACTER
