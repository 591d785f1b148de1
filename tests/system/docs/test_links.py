"""Every link between pages leads to an existing file, picture or heading."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from .pages import HOUSE, every

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_SPAN = re.compile(r"`[^`]*`")


@cache
def anchors(path: Path) -> frozenset[str]:
    """Return the anchors of a page's headings, as GitHub and site builders generate them."""
    found: set[str] = set()
    fenced = False
    for line in path.read_text().splitlines():
        fenced ^= line.lstrip().startswith("```")
        if not fenced and (heading := re.match(r"#{1,6} (.*)", line)):
            text = re.sub(r"[^\w\- ]", "", heading[1].lower()).strip().replace(" ", "-")
            number = next(n for n in range(99) if (f"{text}-{n}" if n else text) not in found)
            found.add(f"{text}-{number}" if number else text)
    return frozenset(found)


def links(path: Path) -> list[tuple[int, str]]:
    """Return the links' lines and targets. The text of a link may continue on the next line."""
    kept, fenced = [], False
    for line in path.read_text().splitlines():
        fenced ^= line.lstrip().startswith("```")
        kept.append("" if fenced else _SPAN.sub("", line))
    text = "\n".join(kept)
    return [(text.count("\n", 0, found.start()) + 1, found[1]) for found in _LINK.finditer(text)]


def broken(path: Path) -> list[str]:
    found = []
    for number, target in links(path):
        if re.match(r"[a-z]+:", target):
            continue
        place, _, anchor = target.partition("#")
        there = (path.parent / place).resolve() if place else path
        if not there.exists():
            found.append(f"{number}: {target}: the file does not exist")
        elif anchor and there.suffix == ".md" and anchor not in anchors(there):
            found.append(f"{number}: {target}: {there.name} has no such heading")
    return found


@pytest.mark.parametrize("path", every(), ids=lambda p: str(p.relative_to(HOUSE)))
def test_links_lead_somewhere(path: Path) -> None:
    assert broken(path) == []


def test_every_page_is_in_the_index() -> None:
    index = HOUSE / "docs/README.md"
    there = {(index.parent / target.partition("#")[0]).resolve() for _, target in links(index)}
    missing = [str(p.relative_to(HOUSE)) for p in every() if p.is_relative_to(HOUSE / "docs") and p not in there]
    assert set(missing) <= {"docs/README.md"}, "docs/README.md leads to all pages but these"


def test_one_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A b!\n![x](other.md) [y](#a-b) [z](#c) `[n](o.md)`\n```text\n[n](o.md)\n```\n")
    assert broken(page) == ["2: other.md: the file does not exist", "2: #c: page.md has no such heading"]
