"""The style sheet: text contrast in light and dark (WCAG AA), and existing classes."""

from __future__ import annotations

import re
from importlib import resources

import pytest

CSS = (resources.files("aliquot.dashboard") / "static" / "aliquot.css").read_text()
BLOCKS = re.findall(r":root \{(.*?)\n\s*\}", CSS, re.S)
WRITTEN = [
    *((ink, back) for ink in ("ink", "soft", "link") for back in ("page", "surface", "sunk")),
    *((f"on-{kind}", kind) for kind in ("held", "idle", "free", "hole", "fresh", "lost", "press")),
    *((mood, back) for mood in ("good", "odd", "bad") for back in (f"{mood}-back", "surface", "page")),
    *(("ink", f"{mood}-back") for mood in ("good", "odd", "bad")),
    *(("soft", f"{mood}-back") for mood in ("good", "odd", "bad")),
    ("ink", "good-back"),
]
"""Text colour and its background: 4.5 to 1."""
SEEN = [("edge", "surface"), ("idle-edge", "surface"), ("held", "surface"), ("fresh-edge", "surface")]
SEEN += [("lost-edge", "surface"), ("idle-edge", "idle"), ("bad", "idle"), ("link", "page")]
"""Outlines with a meaning: 3 to 1."""


def colours(text: str) -> dict[str, str]:
    return dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{3,6})", text))


LIGHT = colours(BLOCKS[0])
DARK = LIGHT | colours(BLOCKS[1])


def luminance(colour: str) -> float:
    digits = colour.lstrip("#")
    digits = "".join(c * 2 for c in digits) if len(digits) == 3 else digits
    parts = [int(digits[n : n + 2], 16) / 255 for n in (0, 2, 4)]
    linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_everything_written_can_be_read(theme: str) -> None:
    known = LIGHT if theme == "light" else DARK
    found = {f"{a} on {b}": round(contrast(known[a], known[b]), 2) for a, b in WRITTEN}
    assert not {pair: ratio for pair, ratio in found.items() if ratio < 4.5}
    seen = {f"{a} beside {b}": round(contrast(known[a], known[b]), 2) for a, b in SEEN}
    assert not {pair: ratio for pair, ratio in seen.items() if ratio < 3}
    assert contrast("#ffffff", known["danger"]) >= 4.5


def test_the_measure_is_right() -> None:
    assert round(contrast("#000", "#fff"), 1) == 21
    assert round(contrast("#777", "#ffffff"), 2) == 4.48


def test_nothing_is_fetched_from_elsewhere() -> None:
    assert "@import" not in CSS
    assert "url(" not in CSS
    for need in ("prefers-color-scheme: dark", "prefers-reduced-motion", "@media print", ":focus-visible"):
        assert need in CSS
