"""The table of complaints is complete: each test that it names exists, and each test of a complaint has a row."""

from __future__ import annotations

import ast
import re
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
TABLE = (HERE / "COMPLAINTS.md").read_text()
NAME = re.compile(r"`(test_[a-z0-9_]+)`")
WHERE = re.compile(r"\(`((?:tests/)?[\w/]+\.py)`\)")
OURS = ("test_complaints.py", "test_faults.py", "test_walk_seed002.py", "test_done.py")


def cases(path: Path) -> dict[str, ast.FunctionDef]:
    """Return the tests of a file by name."""
    every = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef))
    return {node.name: node for node in every if node.name.startswith("test_")}


def rows() -> list[tuple[str, list[str]]]:
    """Return the rows, each with the default file of its tests and its cells."""
    found, home = [], "test_complaints.py"
    for line in TABLE.splitlines():
        if line.startswith("## Bad input"):
            home = "test_faults.py"
        cells = line.strip("| ").split(" | ")
        if line.startswith("| ") and len(cells) > 1 and cells[0] not in ("thread", "case") and cells[0][0] != "*":
            found.append((home, cells))
    return found


def test_every_row_names_tests_that_exist() -> None:
    for home, cells in rows():
        known = set(cases(HERE / home))
        for file in WHERE.findall(cells[-1]):
            known |= set(cases((ROOT if file.startswith("tests/") else HERE) / file))
        named = set(NAME.findall(cells[-1]))
        assert named, cells
        assert not named - known, (cells[0], named - known)


def test_every_scenario_has_a_row_and_every_complaint_a_source() -> None:
    named = set(NAME.findall(TABLE))
    missing = [name for file in OURS for name in cases(HERE / file) if name not in named]
    assert not missing
    for name, node in cases(HERE / "test_complaints.py").items():
        assert len(ast.get_docstring(node) or "") > 20, f"{name} does not name its source"


def test_each_line_of_bad_input_has_one() -> None:
    assert len([cells for home, cells in rows() if home == "test_faults.py"]) == 10
