"""Three wrong rules and a wrong tie-break, one at a time: the suite must fail each time."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location("mutants", ROOT / "tools/mutants.py")
assert SPEC is not None
assert SPEC.loader is not None
mutants = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(mutants)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["overlap", "engines", "compute-kinds", "tie-break"])
def test_a_wrong_rule_is_noticed(name: str) -> None:
    failed = mutants.run(mutants.MUTANTS[name])
    assert failed
    assert f"`{failed[0]}`" in (ROOT / "docs/proof.md").read_text(), "docs/proof.md is stale: python tools/mutants.py"
