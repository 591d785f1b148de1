"""Wrong rules, one at a time: the suite must fail each time. The page of proof names tests that exist."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SPEC = importlib.util.spec_from_file_location("mutants", ROOT / "tools/mutants.py")
assert SPEC is not None
assert SPEC.loader is not None
mutants = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(mutants)


PAGE = (ROOT / "docs/proof.md").read_text()
PROOF = dict(re.findall(r"^\| (.+) \| `(.+)` \|$", PAGE, re.MULTILINE))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name,
            marks=pytest.mark.long(about=[f"src/aliquot/{mutant.file}", PROOF[mutant.what].partition("::")[0]]),
        )
        for name, mutant in mutants.MUTANTS.items()
    ],
)
def test_a_wrong_rule_is_noticed(name: str) -> None:
    # The test in the committed table notices it.
    mutant = mutants.MUTANTS[name]
    assert mutants.run(mutant, [PROOF[mutant.what]]) == [PROOF[mutant.what]]


@pytest.mark.parametrize("named", sorted(set(re.findall(r"`(tests/[^`]+)`", PAGE))))
def test_what_the_page_names_is_there(named: str) -> None:
    path, *parts = named.partition("[")[0].split("::")
    assert (ROOT / path).exists()
    text = (ROOT / path).read_text() if parts else ""
    for part in parts:
        assert re.search(rf"^\s*(?:class|def) {part}\b", text, re.MULTILINE), f"{path} has no {part}"


@pytest.mark.parametrize("name", mutants.MUTANTS)
def test_a_wrong_rule_changes_one_place(name: str) -> None:
    mutant = mutants.MUTANTS[name]
    assert (ROOT / "src/aliquot" / mutant.file).read_text().count(mutant.old) == 1
