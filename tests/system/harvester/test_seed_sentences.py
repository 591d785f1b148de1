"""Every sentence of Harvester's documents on vGPUs is a row of ``seed_sentences.yaml``, with tests that pass."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from system.harvester.seed_sentences import documents, problems, source_of

FILE = Path(__file__).with_name("seed_sentences.yaml")
TOY = """
import pytest

def test_runs(): ...

@pytest.mark.skipif(True, reason="sometimes")
def test_conditional(): ...

@pytest.mark.long(about=["src"])
def test_drawn(): ...

@pytest.mark.skip(reason="broken")
def test_skipped(): ...

@pytest.mark.xfail
def test_expected_to_fail(): ...

def test_gives_up():
    pytest.skip("later")

def helper(): ...

class TestInside:
    def test_method(self): ...

@pytest.mark.skip
class TestSkipped:
    def test_method(self): ...
"""
MARKED = "import pytest\npytestmark = [pytest.mark.slow, pytest.mark.skip]\ndef test_it(): ..."
FILES = {"toy.py": TOY, "all.py": MARKED}


def test_every_sentence_has_a_test_that_the_gate_runs() -> None:
    found = documents(yaml.safe_load(FILE.read_text()))
    assert [each.name for each in found] == ["MIG design", "vGPU design", "vGPU page"]
    assert list(problems(found, source_of)) == []


def wrong(*sentences: dict[str, Any], stated: int = 1, aside: int = 0) -> list[str]:
    rows = [{"says": "it works", **each} for each in copy.deepcopy(sentences)]
    parts = [{"part": "p", "sentences": rows}]
    value = {"documents": [{"name": "d", "source": "s", "stated": stated, "aside": aside, "parts": parts}]}
    return list(problems(documents(value), lambda file: FILES.get(file, "")))


@pytest.mark.parametrize(
    "tests",
    [
        ["toy.py::test_runs"],
        ["toy.py::TestInside::test_method"],
        ["toy.py::test_conditional"],
        ["toy.py::test_drawn", "toy.py::test_runs"],
    ],
)
def test_tests_that_run_are_enough(tests: list[str]) -> None:
    assert wrong({"tests": tests}) == []


@pytest.mark.parametrize(
    ("tests", "why"),
    [
        (["toy.py::test_gone"], "does not exist"),
        (["gone.py::test_runs"], "does not exist"),
        (["toy.py::test_method"], "does not exist"),
        (["toy.py::helper"], "does not exist"),
        (["toy.py::TestInside"], "does not exist"),
        (["toy.py"], "does not exist"),
        (["toy.py::test_skipped"], "never passes: skip"),
        (["toy.py::test_gives_up"], "never passes: skip"),
        (["toy.py::TestSkipped::test_method"], "never passes: skip"),
        (["all.py::test_it"], "never passes: skip"),
        (["toy.py::test_runs", "toy.py::test_expected_to_fail"], "never passes: xfail"),
        (["toy.py::test_drawn"], "only long tests"),
        (["toy.py::test_runs", "toy.py::test_runs"], "a test twice"),
        ([], "neither or both"),
    ],
)
def test_tests_that_prove_nothing_are_found(tests: list[str], why: str) -> None:
    (found,) = wrong({"tests": tests})
    assert why in found


def test_rows_that_are_no_rows_are_found() -> None:
    row = {"tests": ["toy.py::test_runs"]}
    assert "neither or both" in wrong({**row, "aside": "link"}, stated=0, aside=1)[0]
    assert "neither or both" in wrong({"aside": "link", "differs": "so"}, stated=0, aside=1)[0]
    assert wrong({"aside": "link"}, stated=0, aside=1) == []
    assert wrong(row, row, stated=2) == ["d, p: 'it works' is there 2 times"]
    assert wrong(row, stated=2) == ["d has 1 stated and 0 aside, not 2, 0"]
    with pytest.raises(msgspec.ValidationError, match="test"):
        wrong({"test": ["toy.py::test_runs"]})
