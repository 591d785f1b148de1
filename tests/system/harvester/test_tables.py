"""Check the table of complaints: each test that it names exists, and each complaint's test has a row."""

from __future__ import annotations

import ast
import re
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
TABLE = (HERE / "COMPLAINTS.md").read_text()
NAME = re.compile(r"`((?:test_)?[a-z0-9_]+)`")
WHERE = re.compile(r"\(`((?:tests/)?[\w/]+\.py)`\)")
NOT_OURS = ("not solved", "not ours", "not there")


def functions(path: Path) -> dict[str, ast.FunctionDef]:
    """Return functions and methods of a file, by name."""
    return {node.name: node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


def complaints() -> dict[str, ast.FunctionDef]:
    found: dict[str, ast.FunctionDef] = {}
    for path in sorted(HERE.glob("test_complaints_*.py")):
        found |= {name: node for name, node in functions(path).items() if name.startswith("test_")}
    return found


def rows() -> list[list[str]]:
    cut = (line.strip("| ").split(" | ") for line in TABLE.splitlines() if line.startswith("| "))
    return [row for row in cut if len(row) > 1 and row[0] not in ("thread", "case") and not row[0].startswith("**")]


def test_every_test_that_the_table_names_exists() -> None:
    here = complaints() | functions(HERE / "test_conformance.py")
    for row in rows():
        known = dict(here)
        for file in WHERE.findall(row[-1]):
            known |= functions((ROOT if file.startswith("tests/") else HERE) / file)
        named = [name for name in NAME.findall(row[-1]) if not name.endswith("_py")]
        assert named or any(word in row[-1] for word in NOT_OURS) or "the rows of" in row[-1], row
        assert not set(named) - known.keys(), row


def test_every_complaint_s_test_has_a_row_and_a_source() -> None:
    named = set(NAME.findall(TABLE))
    for name, node in complaints().items():
        assert name in named, f"{name} has no row in COMPLAINTS.md"
        assert len(ast.get_docstring(node) or "") > 20, f"{name} does not say where it was reported"


def test_most_complaints_are_solved_and_the_others_say_why() -> None:
    reported = [row for row in rows() if len(row) == 3]
    open_ones = [row for row in reported if any(row[2].startswith(word) for word in NOT_OURS)]
    assert len(reported) - len(open_ones) >= 40
    assert all(":" in row[2] or row[2] == "not ours" for row in open_ones), open_ones
