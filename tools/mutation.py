"""Draw wrong programs by a seed and count those that the tests notice: `python tools/mutation.py --seed 1 --count 100`.

A mutant is one small change of one expression or statement, made by a fixed set of operators. The same seed draws the
same mutants from the same sources. Each is written into a copy of the sources and tried against the tests of its area,
the cheapest first; what no test notices is listed as a survivor. ``--root`` tries another checkout, ``--jobs`` several
mutants at once, ``--only`` mutants by their names, ``--out`` writes the result as JSON.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

LONGEST_S = 240
"""A mutant whose tests take longer is noticed: it makes them hang."""


class Area(NamedTuple):
    """Files below ``src/aliquot``, and the tests that should notice what is wrong with them."""

    files: Sequence[str]
    tests: Sequence[str]


AREAS = {
    "engine": Area(
        ("core/engine/*.py",),
        (
            *(
                "tests/unit/core/engine",
                "tests/laws/crash/test_failing_calls.py",
                "tests/laws/crash/test_world_moves.py",
            ),
            "tests/system/cli/test_apply.py",
        ),
    ),
    "journal": Area(
        (
            "hardware/state/*journal*.py",
            "hardware/catalog_recorder.py",
            "foundation/lock.py",
            "hardware/state/boot_record_file.py",
        ),
        (
            *("tests/contract/test_journal.py", "tests/contract/test_lock.py", "tests/contract/test_record.py"),
            *("tests/unit/core/engine", "tests/laws/crash/test_journal.py", "tests/system/cli/test_history.py"),
        ),
    ),
    "agent": Area(
        ("kubernetes/label_agent/agent/*.py", "kubernetes/node_agent/*.py"),
        (
            "tests/unit/kubernetes/label_agent",
            "tests/system/kubernetes/test_agent_kept.py",
            "tests/system/kubernetes/test_traps.py",
        ),
    ),
    "page": Area(
        ("dashboard/security/*.py", "dashboard/forms.py", "dashboard/pending_changes.py"),
        (
            "tests/system/dashboard/test_security.py",
            "tests/system/dashboard/test_desk.py",
            "tests/system/dashboard/test_pages_forms.py",
        ),
    ),
    "webhook": Area(
        ("kubernetes/virtual_machines/webhook/*.py",),
        (
            *(
                "tests/unit/kubernetes/virtual_machines/webhook/test_webhook_server.py",
                "tests/unit/kubernetes/virtual_machines/webhook/test_webhook_command.py",
            ),
            *(
                "tests/unit/kubernetes/virtual_machines/webhook/test_certificates.py",
                "tests/system/kubernetes/test_webhooks.py",
            ),
        ),
    ),
    "slurm": Area(
        ("slurm/node/*.py", "slurm/controller/*.py"),
        (
            *("tests/unit/slurm", "tests/laws/property/test_slurm_demand.py"),
            "tests/system/slurm/test_apply.py",
        ),
    ),
    "admission": Area(
        ("kubernetes/virtual_machines/*/admission/*.py",),
        ("tests/unit/kubernetes/virtual_machines/harvester/admission", "tests/system/kubernetes/test_webhooks.py"),
    ),
}

_COMPARED: dict[type[ast.cmpop], str] = {
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}


class Mutant(NamedTuple):
    """``text`` instead of the bytes from ``start`` to ``end`` of a file."""

    area: str
    file: str
    line: int
    start: int
    end: int
    text: str

    @property
    def name(self) -> str:
        return f"{self.file}:{self.line}:{self.start}:{self.text or 'pass'}"


def mutants(root: Path) -> list[Mutant]:
    """All that the operators make of all areas."""
    found = []
    for area, (patterns, _) in AREAS.items():
        for path in sorted({path for pattern in patterns for path in (root / "src/aliquot").glob(pattern)}):
            source = path.read_bytes()
            name = path.relative_to(root / "src/aliquot").as_posix()
            for node, start, end, text in _changes(source):
                found.append(Mutant(area, name, node.lineno, start, end, text))
    return found


def _changes(source: bytes) -> Iterator[tuple[ast.expr | ast.stmt, int, int, str]]:
    lines = [0]
    for line in source.splitlines(keepends=True):
        lines.append(lines[-1] + len(line))

    def place(node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return lines[node.lineno - 1] + node.col_offset, lines[node.end_lineno - 1] + node.end_col_offset

    def text(node: ast.expr) -> str:
        start, end = place(node)
        return source[start:end].decode()

    tree = ast.parse(source)
    # Before Python 3.12 what is inside an f-string does not know its place.
    texts = {id(each) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for each in ast.walk(node)}
    for node in ast.walk(tree):
        if id(node) in texts:
            continue
        match node:
            case ast.Compare(left=left, ops=[operator], comparators=[right]):
                yield node, *place(node), f"({text(left)} {_COMPARED[type(operator)]} {text(right)})"
            case ast.BoolOp(op=operator, values=[*values]):
                word = " or " if isinstance(operator, ast.And) else " and "
                yield node, *place(node), f"({word.join(f'({text(each)})' for each in values)})"
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield node, *place(node), f"bool({text(operand)})"
            case ast.Constant(value=bool() as value):
                yield node, *place(node), str(not value)
            case ast.Constant(value=int() as value):
                yield node, *place(node), str(value + 1)
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as operator, right=right):
                word = "-" if isinstance(operator, ast.Add) else "+"
                yield node, *place(node), f"({text(left)} {word} {text(right)})"
            case ast.If(test=test) | ast.IfExp(test=test):
                yield test, *place(test), f"(not ({text(test)}))"
            case ast.Expr(value=ast.Call()):
                yield node, *place(node), "pass"
            case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
                yield node, *place(node), "return None"


def tried(root: Path, mutant: Mutant) -> str:
    """The test that notices it, "it hangs", or "" if none does."""
    python = str(root / ".venv/bin/python")
    with tempfile.TemporaryDirectory(prefix="aliquot-mutant-") as folder:
        copy = Path(folder) / "src"
        shutil.copytree(root / "src", copy, ignore=shutil.ignore_patterns("__pycache__"))
        path = copy / "aliquot" / mutant.file
        source = path.read_bytes()
        path.write_bytes(source[: mutant.start] + mutant.text.encode() + source[mutant.end :])
        env = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1", "ALIQUOT_ALL": "1"}
        words = [python, "-m", "pytest", "-n", "0", "-q", "-x", "--no-header", "--tb=no", "-rfE"]
        command = [python, str(root / "tools/contained.py")] if (root / "tools/contained.py").exists() else []
        for test in AREAS[mutant.area].tests:
            try:
                done = subprocess.run(
                    [*command, *words, test],
                    cwd=root,
                    env=env,
                    capture_output=True,
                    text=True,
                    timeout=LONGEST_S,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                return f"it hangs: {test}"
            if done.returncode:
                lines = done.stdout.splitlines()
                failed = (line.split(" - ")[0] for line in lines if line.startswith(("FAILED", "ERROR")))
                return next(failed, f"it stops: {test}")
    return ""


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--seed", default="1")
    asked.add_argument("--count", type=int, default=100)
    asked.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    asked.add_argument("--jobs", type=int, default=2)
    asked.add_argument("--only", nargs="*", default=[])
    asked.add_argument("--out", type=Path)
    given = asked.parse_args()
    root = given.root.resolve()
    every = mutants(root)
    chosen = random.Random(given.seed).sample(every, min(given.count, len(every)))
    chosen = [each for each in chosen if not given.only or each.name in given.only]
    print(f"{len(chosen)} of {len(every)} mutants, seed {given.seed}", flush=True)
    began, result = time.monotonic(), {}
    with ThreadPoolExecutor(given.jobs) as pool:
        for mutant, noticed in zip(chosen, pool.map(lambda each: tried(root, each), chosen), strict=True):
            result[mutant.name] = noticed
            print(f"{'survived' if not noticed else 'noticed '}  {mutant.name!r}  {noticed}", flush=True)
    survivors = sum(not noticed for noticed in result.values())
    print(f"{len(result) - survivors} noticed, {survivors} survived, {time.monotonic() - began:.0f} s")
    if given.out:
        given.out.write_text(json.dumps(result, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
