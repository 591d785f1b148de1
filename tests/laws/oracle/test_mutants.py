"""Wrong rules, one at a time: the suite must fail each time. The page of proof names tests that exist."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
if str(ROOT) not in sys.path:
    sys.path.append(str(ROOT))

from tools import mutants  # noqa: E402
from tools.mutation_runner import fresh_pytest  # noqa: E402

PAGE = (ROOT / "docs/proof.md").read_text()
PROOF = dict(re.findall(r"^\| (.+) \| `(.+)` \|$", PAGE, re.MULTILINE))


@pytest.fixture(scope="module")
def server() -> Iterator[fresh_pytest.Server]:
    with fresh_pytest.server() as started:
        yield started


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
def test_a_wrong_rule_is_noticed(name: str, server: fresh_pytest.Server) -> None:
    # The test in the committed table notices it.
    mutant = mutants.MUTANTS[name]
    assert mutants.run(mutant, server, [PROOF[mutant.what]]) == [PROOF[mutant.what]]


def test_a_wrong_rule_that_no_test_notices_survives(server: fresh_pytest.Server) -> None:
    # In turn with one of the same file that is noticed: no run has the source of the one before.
    noticed = mutants.MUTANTS["function-driver"]
    harmless = noticed._replace(new=f"{noticed.old}  # nothing is wrong")
    tests = [PROOF[noticed.what]]
    assert [mutants.run(each, server, tests) for each in (noticed, harmless, noticed)] == [tests, [], tests]


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
