"""What pages show as code is typed, checked, or plainly no command."""

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
def test_no_command_is_in_a_block_that_nobody_types(path: Path) -> None:
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
    """It has no language, so nobody would type it. Text that goes on in a list is no code."""
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
def test_a_page_says_whom_it_is_for(path: Path) -> None:
    """Before its first heading of the second order."""
    begin = re.split(r"(?m)^## ", path.read_text())[0]
    told = re.search(
        r"(?m)^(For |\*\*Goal:\*\*|\*\*New here|.*\bFor (whoever|administrators|people|contributors)\b)", begin
    )
    assert told, f"{name(path)} does not begin with whom it is for and what they will have"


def _fenced(path: Path) -> set[int]:
    return {n for block in read(path).blocks for n in range(block.line, block.line + len(block.lines) + 2)}
