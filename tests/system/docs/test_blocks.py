"""Code blocks of pages are typed, checked, or clearly not commands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .pages import HOUSE, TYPED, every, read

PAGES = every()
MADE = (
    "docs/cli.md",
    "docs/proof.md",
    "docs/reference",
    "docs/critique.md",
    "docs/architecture.md",
    "catalog",
    "CONTRIBUTING",
)
SHOWN = {"yaml", "json", "xml", "conf", "text", "promql", "ini"}
_COMMAND = re.compile(r"^\s*(\$ |(sudo )?(aliquot|kubectl|helm|podman|docker|systemctl|virsh|scontrol|sbatch) [a-z-])")


def name(path: Path) -> str:
    return str(path.relative_to(HOUSE))


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_every_block_says_what_it_is(path: Path) -> None:
    odd = [f"{b.line}: {b.language!r}" for b in read(path).blocks if b.language not in {*SHOWN, *TYPED}]
    assert not odd, f"{name(path)}: one of {', '.join(sorted({*SHOWN, *TYPED}))} is wanted: {odd}"


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_no_command_is_in_a_block_that_is_not_typed(path: Path) -> None:
    hidden = [
        f"{block.line}: {line.strip()}"
        for block in read(path).blocks
        if block.language in SHOWN
        for line in block.lines
        if _COMMAND.match(line)
    ]
    assert not hidden, f"{name(path)}: these are in no console or sh block: {hidden}"


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_no_code_by_indent_alone(path: Path) -> None:
    # Indented code has no language, so no test would type it. Indented text that continues a list item is allowed.
    lines = path.read_text().splitlines()
    fenced = _fenced(path)
    found = []
    for number, line in enumerate(lines, start=1):
        before = next((each for each in reversed(lines[: number - 1]) if each.strip()), "")
        begins = line.startswith("    ") and number > 1 and not lines[number - 2].strip()
        in_list = re.match(r"\s*([-*]|\d+\.) |\s{2,}\S", before) is not None
        if begins and not in_list and number not in fenced and name(path) not in MADE:
            found.append(f"{number}: {line.strip()}")
    assert not found or name(path).startswith(MADE), f"{name(path)}: a fence is wanted: {found}"


@pytest.mark.parametrize("path", [p for p in PAGES if not name(p).startswith(MADE)], ids=name)
def test_a_page_opens_with_a_sentence_on_what_it_is_for(path: Path) -> None:
    assert opens_with_a_sentence(path.read_text()), f"{name(path)}: its title is not followed by a short sentence"


@pytest.mark.parametrize(
    "begin", ["## Install", "- a list", "| a | b |", "Words without an end", "word " * 31 + "end."]
)
def test_a_page_that_opens_otherwise_is_found(begin: str) -> None:
    assert not opens_with_a_sentence(f"# Title\n\n<!-- runs: sim -->\n\n{begin}\n\n## More\n\nThis is late.\n")


def opens_with_a_sentence(text: str) -> bool:
    """Return whether prose follows the title, and its first sentence has 30 words at most."""
    plain = re.sub(r"(?s)<!--.*?-->", "", text.partition("\n")[2]).strip()
    first = re.split(r"(?<=[.!?])\s", plain.partition("\n\n")[0])[0]
    return re.match(r"[\w`*\[]", first) is not None and first.endswith(".") and len(first.split()) <= 30


def _fenced(path: Path) -> set[int]:
    return {n for block in read(path).blocks for n in range(block.line, block.line + len(block.lines) + 2)}
