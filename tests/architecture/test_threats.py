"""Threat table of docs/security.md: each threat names its prevention and existing tests, and each shipped component has
a row.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/security.md"
HEAD = ["threat", "what prevents it", "tests"]
_TEST = re.compile(r"`(tests/[\w/]+\.py)::((?:\w+::)?\w+)`")
_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
_SEPARATORS = re.compile(r"[\s,]*")


def rows(text: str) -> Iterator[list[str]]:
    """Yield the rows of every table in the threats section, without the header."""
    section = text.partition("\n## Threats\n")[2].partition("\n## ")[0]
    for line in section.splitlines():
        if line.startswith("|"):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if cells != HEAD and set("".join(cells)) != {"-"}:
                yield cells


def faults(text: str) -> list[str]:
    """Return the errors of each row."""
    found = []
    for cells in rows(text):
        if len(cells) != len(HEAD) or not all(cells):
            found.append(f"{cells[0]}: it needs a threat, what prevents it, and tests")
            continue
        named = _TEST.findall(cells[2])
        if not named or not _SEPARATORS.fullmatch(_TEST.sub("", cells[2])):
            found.append(f"{cells[0]}: not a list of `tests/PATH.py::NAME`: {cells[2]}")
        found += [f"{cells[0]}: there is no {path}::{name}" for path, name in named if name not in collected(path)]
    return found


@cache
def collected(path: str) -> frozenset[str]:
    """Return the names of the tests that pytest collects from a file. Tests of a class follow its name."""
    file = ROOT / path
    if not file.is_file() or not file.name.startswith("test_"):
        return frozenset()
    found = []
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            found += [f"{node.name}::{each.name}" for each in node.body if isinstance(each, _FUNCTION)]
        elif isinstance(node, _FUNCTION):
            found.append(node.name)
    return frozenset(name for name in found if name.rpartition("::")[2].startswith("test_"))


def shipped() -> set[str]:
    """Return the names of all services and workloads in ``deploy`` that run Aliquot."""
    units = {path.name for path in (ROOT / "deploy").glob("*/*.service")}
    workloads = set()
    for path in (ROOT / "deploy").glob("kubernetes*/**/*.yaml"):
        for document in yaml.safe_load_all(path.read_text()):
            if document and document["kind"] in ("DaemonSet", "Deployment"):
                workloads.add(document["metadata"]["name"])
    return units | workloads


def test_every_component_that_is_shipped_has_a_row() -> None:
    section = PAGE.read_text().partition("\n## Components")[2].partition("\n## ")[0]
    named = set(re.findall(r"`([\w.@-]+)`", section))
    assert len(shipped()) > 10
    assert shipped() - named == set()


def test_every_threat_names_tests_that_exist() -> None:
    text = PAGE.read_text()
    threats = [cells[0] for cells in rows(text)]
    assert len(threats) == len(set(threats)) > 40
    assert faults(text) == []


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ("| a | b | `tests/architecture/test_threats.py::test_none` |", "there is no"),
        ("| a | b | `tests/architecture/test_none.py::test_none` |", "there is no"),
        ("| a | b | `tests/architecture/test_threats.py::rows` |", "there is no"),
        ("| a | b | |", "it needs"),
        ("| a | | `tests/architecture/test_threats.py::test_every_threat_names_tests_that_exist` |", "it needs"),
        ("| a | b | none yet |", "not a list"),
        (
            "| a | b | `tests/architecture/test_threats.py::test_every_threat_names_tests_that_exist`, soon |",
            "not a list",
        ),
    ],
)
def test_a_row_without_a_test_is_found(row: str, fault: str) -> None:
    text = f"# x\n\n## Threats\n\n### y\n\n| threat | what prevents it | tests |\n|---|---|---|\n{row}\n\n## z\n"
    assert len(faults(text)) == 1
    assert fault in faults(text)[0]
