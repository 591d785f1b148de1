"""The drawn pictures match the catalog and are readable on light and dark pages."""

from __future__ import annotations

import re
import sys
from itertools import combinations
from xml.etree import ElementTree

import pytest

from aliquot.core.model import catalog

from .pages import HOUSE

sys.path.append(str(HOUSE))  # tools is not in the tests' path
from tools import build_docs
from tools.docs import slices, svg
from tools.docs.flow import Box, Flow

PICTURES = sorted(name for name in build_docs.PAGES if name.endswith(".svg"))
TEXT_RATIO = 4.5
"""WCAG 2 AA, for text of a normal size."""
_TAG = "{http://www.w3.org/2000/svg}"


def rectangles(root: ElementTree.Element) -> list[tuple[float, float, float, float]]:
    """Return the boxes and bars of a picture: left, top, right, bottom."""
    found = [each.attrib for each in root.iter(f"{_TAG}rect") if each.get("class") not in ("ground", "free")]
    corners = [tuple(float(each[key]) for key in ("x", "y", "width", "height")) for each in found]
    return [(x, y, x + width, y + height) for x, y, width, height in corners]


def overlapping(root: ElementTree.Element) -> list[tuple[object, object]]:
    return [
        (a, b)
        for a, b in combinations(rectangles(root), 2)
        if min(a[2], b[2]) - max(a[0], b[0]) > 0.1 and min(a[3], b[3]) - max(a[1], b[1]) > 0.1
    ]


def luminance(colour: str) -> float:
    parts = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: str, other: str) -> float:
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def fill(kind: str, mode: int) -> str:
    found = re.search(r"fill:(#[0-9a-f]{6})", svg.STYLE[kind][mode])
    assert found, kind
    return found[1]


@pytest.mark.parametrize("name", PICTURES)
def test_texts_are_inside_and_boxes_apart(name: str) -> None:
    root = ElementTree.fromstring((HOUSE / name).read_text())
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for each in root.iter(f"{_TAG}text"):
        size = svg.width_of(each.text or "", int(each.attrib["font-size"]))
        left = float(each.attrib["x"]) - size * {"start": 0.0, "middle": 0.5, "end": 1.0}[each.attrib["text-anchor"]]
        assert 0 <= left <= width - size, each.text
        assert 0 < float(each.attrib["y"]) < height, each.text
    assert overlapping(root) == []


@pytest.mark.parametrize("name", PICTURES)
def test_every_class_has_a_style(name: str) -> None:
    root = ElementTree.fromstring((HOUSE / name).read_text())
    assert {each.get("class") for each in root.iter() if each.get("class")} <= set(svg.STYLE)


@pytest.mark.parametrize("mode", [0, 1], ids=["light", "dark"])
def test_text_can_be_read_on_every_ground(mode: int) -> None:
    grounds = ["ground", "box", "plain", "bad", *svg.LETTERS]
    assert [kind for kind in grounds if contrast(fill("ink", mode), fill(kind, mode)) < TEXT_RATIO] == []
    soft = [
        kind
        for kind in ("ground", "box", "plain", "bad")
        if contrast(fill("soft", mode), fill(kind, mode)) < TEXT_RATIO
    ]
    assert soft == []


def test_every_placement_is_drawn() -> None:
    family = catalog.family(slices.FAMILY)
    wanted = sum(len(profile.starts) for profile in family.plain_profiles)
    assert len(rectangles(ElementTree.fromstring(slices.placements()))) == wanted


def test_boxes_that_overlap_are_found() -> None:
    boxes = (Box("a", 0, 0, "a"), Box("b", 0, 0.1, "b"))
    assert len(overlapping(ElementTree.fromstring(Flow("", boxes, (), 10, 100).draw()))) == 1
