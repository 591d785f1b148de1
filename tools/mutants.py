"""Break one rule at a time and see which test notices. A suite that stays green on a wrong rule proves nothing.

Usage: python tools/mutants.py            run all and write docs/proof.md
       python tools/mutants.py NAME       run one and print the failing tests
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
TESTS = ("tests/oracle/test_planner.py", "tests/property/test_laws.py")


class Mutant(NamedTuple):
    """A wrong rule: ``old`` becomes ``new`` in one file."""

    what: str
    file: str
    old: str
    new: str


MUTANTS = {
    "overlap": Mutant(
        "rule: two instances may share memory slice 3",
        "board.py",
        ".placement(start).mask for",
        ".placement(start).mask & ~8 for",
    ),
    "engines": Mutant(
        "rule: media engine limits (totals, +me, +me.all, maxima; each implies others) are not checked",
        "rules.py",
        "    max_instances,\n    compute_slices,\n    engine_totals,\n    at_most,\n    excludes,\n",
        "    compute_slices,\n",
    ),
    "compute-kinds": Mutant(
        "rule: a second instance without graphics on Thor",
        "rules.py",
        "== wanted) > rule.count",
        "== wanted) > rule.count + 1",
    ),
    "tie-break": Mutant(
        "tie-break: lowest start instead of the driver's own choice",
        "pack.py",
        "for start in board.choices(profile_id, mask, swapped):",
        "for start in board.starts[profile_id]:",
    ),
    "held-first": Mutant(
        "cost: held instances weigh no more than idle ones",
        "target.py",
        "return held, len(doomed),",
        "return 0, len(doomed),",
    ),
    "fewest": Mutant(
        "cost: the number of destroyed instances is not counted",
        "target.py",
        "return held, len(doomed),",
        "return held, 0,",
    ),
    "room": Mutant("cost: room left is not counted", "pack.py", "-board.room(board.mask(leaf)))", "0)"),
}


def run(mutant: Mutant, tests: Sequence[str] = TESTS) -> list[str]:
    """The first of some tests that fails on a copy of the source with the mutant in it; empty if all pass."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "src", Path(folder) / "src")
        path = Path(folder) / "src/aliquot/planner" / mutant.file
        text = path.read_text()
        if text.count(mutant.old) != 1:
            raise SystemExit(f"{mutant.file}: expected exactly one {mutant.old!r}")
        path.write_text(text.replace(mutant.old, mutant.new))
        env = os.environ | {"PYTHONPATH": f"{folder}/src{os.pathsep}{ROOT / 'tests'}"}
        command = [sys.executable, "-m", "pytest", "-q", "-x", "--no-header", "--tb=no", "-rfE", *tests]
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    return [
        line.split(" - ")[0].split()[1] for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))
    ]


def main() -> int:
    if len(sys.argv) > 1:
        print("\n".join(run(MUTANTS[sys.argv[1]])) or "nothing failed")
        return 0
    rows = [
        "# Proof that the tests can fail",
        "",
        "Made by `python tools/mutants.py`. The suite runs each named test against its mutant and wants it to fail.",
    ]
    rows += ["", "| broken on purpose | first test that fails |", "|---|---|"]
    for name, mutant in MUTANTS.items():
        failed = run(mutant)
        rows.append(f"| {mutant.what} | {'`' + failed[0] + '`' if failed else '**none**'} |")
        print(name, failed or "SURVIVED", flush=True)
    (ROOT / "docs/proof.md").write_text("\n".join(rows) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
