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
VGPU_TESTS = ("tests/oracle/test_vgpu_planner.py", "tests/property/test_vgpu_laws.py")

REST = """
## Why the search over vGPUs is complete

- **Equal size**: types of one size are alike to the driver, so only how many stay of each type matters. Every way
  to keep some is tried, by held vGPUs destroyed, then by vGPUs destroyed; the first that ends complete is the
  least. `tests/oracle` compares 115 states of an A2 with each other.
- **Mixed sizes**: places of one size never overlap (checked for every type of the catalog). So whether the driver
  comes to a place depends only on vGPUs that begin to the left of it: made from left to right, a set of places
  comes about exactly if no place of a size stays free to the left of a new vGPU of that size. Where one does, the
  vGPU of that size fits there as well, at no cost, so it is never needed. One walk from left to right, with the
  least rest remembered per state (GiB, vGPUs still to come), therefore finds the least destruction. `tests/oracle`
  compares it with brute force over every subset of what is there and every order of creations.
- **Inside GPU instances**: every arrangement of GPU instances is weighed with the least destruction of vGPUs in it;
  the sum decides.
"""


class Mutant(NamedTuple):
    """A wrong rule: ``old`` becomes ``new`` in one file."""

    what: str
    file: str
    old: str
    new: str
    tests: Sequence[str] = TESTS


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
    "vgpu-most": Mutant(
        "rule: the most of a vGPU type counts its own series only",
        "vgpu/rules.py",
        "count = n if each.mig_backed else total",
        "count = n",
        VGPU_TESTS,
    ),
    "vgpu-order": Mutant(
        "order: new vGPUs in mixed-size mode are made from right to left",
        "vgpu/mixed.py",
        "out.append((item, place))",
        "out.insert(0, (item, place))",
        VGPU_TESTS,
    ),
    "vgpu-room": Mutant(
        "rule: a vGPU in mixed-size mode covers one GiB less than it has",
        "vgpu/rooms.py",
        "rounded = -(-each.fb_mib // 1024)",
        "rounded = max(1, -(-each.fb_mib // 1024) - 1)",
        VGPU_TESTS,
    ),
    "vgpu-one-size": Mutant(
        "rule: one GPU instance takes vGPUs of two sizes",
        "vgpu/rooms.py",
        "having == profile and (not count or size == each.fb_mib)",
        "having == profile",
        VGPU_TESTS,
    ),
    "vgpu-fewest": Mutant(
        "cost: vGPUs that go with their GPU instance are not counted",
        "vgpu/search.py",
        "return cost[0] + held, cost[1] + gone,",
        "return cost[0] + held, cost[1],",
        VGPU_TESTS,
    ),
    "vgpu-held": Mutant(
        "cost: a held vGPU in mixed-size mode weighs no more than an idle one",
        "vgpu/mixed.py",
        "return sum(h.vgpu.held for h in lost), len(lost)",
        "return 0, len(lost)",
        VGPU_TESTS,
    ),
}


def run(mutant: Mutant, tests: Sequence[str] = ()) -> list[str]:
    """The first of some tests that fails on a copy of the source with the mutant in it; empty if all pass."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "src", Path(folder) / "src")
        path = Path(folder) / "src/aliquot/planner" / mutant.file
        text = path.read_text()
        if text.count(mutant.old) != 1:
            raise SystemExit(f"{mutant.file}: expected exactly one {mutant.old!r}")
        path.write_text(text.replace(mutant.old, mutant.new))
        env = os.environ | {"PYTHONPATH": f"{folder}/src{os.pathsep}{ROOT / 'tests'}"}
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-x",
            "--no-header",
            "--tb=no",
            "-rfE",
            *(tests or mutant.tests),
        ]
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
    (ROOT / "docs/proof.md").write_text("\n".join(rows) + "\n" + REST)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
