"""Three wrong rules and a wrong tie-break, one at a time: the suite must fail each time."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location("mutants", ROOT / "tools/mutants.py")
assert SPEC is not None
assert SPEC.loader is not None
mutants = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(mutants)


PROOF = dict(re.findall(r"^\| (.+) \| `(.+)` \|$", (ROOT / "docs/proof.md").read_text(), re.MULTILINE))


@pytest.mark.slow
@pytest.mark.parametrize("name", mutants.MUTANTS)
def test_a_wrong_rule_is_noticed(name: str) -> None:
    """By the test that the committed table names."""
    mutant = mutants.MUTANTS[name]
    assert mutants.run(mutant, [PROOF[mutant.what]]) == [PROOF[mutant.what]]
