"""Draw wrong programs by a seed and count those that the tests notice: `python tools/mutation.py --seed 1 --count 300`.

A mutant is one small change of one expression or statement, made by a fixed set of operators. The same seed draws the
same mutants from the same sources. The tests run once to see which lines each of them executes. Then each mutant is
tried against the tests that execute its statement, the cheapest first, until one fails. A mutant that no test notices
is a survivor, also where no test executes it. What survives in a process that was started without the mutant is tried
again in one that was started with it.

``--out FILE`` keeps the results as JSON: the next run tries only what has no result or survived. ``--lines FILE`` keeps
the lines that each test executes while the sources stay the same. ``--areas`` and ``--only`` choose among the drawn,
``--tests`` other tests.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]

from tools.mutation_runner.operators import AREAS, Mutant, mutants  # noqa: E402
from tools.mutation_runner.warm_tests import FRESH, Tests, write  # noqa: E402

RUNNER = ROOT / "tools/mutation_runner"
TESTS = (
    *("tests/unit/foundation", "tests/unit/core/engine", "tests/unit/core/model", "tests/unit/hardware/state"),
    *("tests/unit/kubernetes", "tests/unit/dashboard", "tests/unit/node", "tests/unit/metrics/test_host.py"),
    *(f"tests/contract/test_{name}.py" for name in ("journal", "lock", "record", "watching")),
    *(f"tests/laws/crash/test_{name}.py" for name in ("failing_calls", "changed_meanwhile", "power_cuts", "journal")),
    *(f"tests/system/cli/test_{name}.py" for name in ("apply", "history", "boot", "failure", "saved_plan", "lasting")),
    *(f"tests/system/cli/test_{name}.py" for name in ("hanging_driver", "version_skew", "usage", "watch")),
    *(
        f"tests/system/dashboard/test_{name}.py"
        for name in ("security", "pending_changes", "pages_forms", "pages_actions")
    ),
    *(f"tests/system/kubernetes/test_{name}.py" for name in ("agent_kept", "traps", "webhooks", "two_agents")),
    *(
        f"tests/system/kubernetes/test_{name}.py"
        for name in ("agent_shown", "hanging_driver", "agent_machine", "drain")
    ),
    *("tests/system/kubelet/test_with_hardware.py", "tests/architecture/test_values.py"),
)
"""The tests that should notice what is wrong in the areas."""
READERS = ("tests/architecture/test_values.py",)
"""Tests that read the sources: they may notice what is wrong with any statement that runs at import."""


class Runner:
    """Tries mutants of a checkout in a copy of its sources."""

    def __init__(self, root: Path, copy: Path, tests: Sequence[str]) -> None:
        self._root = root
        self._copy = copy
        self._tests = tests
        self.lines: Tests = {}
        self._sound: dict[str, bool] = {}
        shutil.copytree(root / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(RUNNER / "sitecustomize.py", copy / "src")
        for name in ("lines", "tmp"):
            (copy / name).mkdir()
        self._index: dict[str, int] = {}
        size = 0
        for file in dict.fromkeys(mutant.file for mutant in mutants(root)):
            self._index[file] = size
            size += len((root / "src/aliquot" / file).read_bytes().splitlines()) + 1
        (copy / "lines/map").write_bytes(bytes(size))

    def measure(self, keep: Path | None) -> None:
        """Find the lines of every test that is not known yet. ``keep`` is a file that knows some."""
        digest = hashlib.sha256(b"".join((self._root / "src/aliquot" / file).read_bytes() for file in self._index))
        if keep and keep.exists():
            kept = json.loads(keep.read_bytes())
            self.lines = kept["tests"] if kept["sources"] == digest.hexdigest() else {}
        index = {str(self._copy / "src/aliquot" / file): first for file, first in self._index.items()}
        (self._copy / "lines/index.json").write_text(json.dumps(index))
        for name, seconds, lines in self._answers(self._tests, measure=True):
            self.lines[name] = (seconds, lines)
        (self._copy / "lines/index.json").unlink()
        if keep:
            keep.write_text(json.dumps({"sources": digest.hexdigest(), "tests": self.lines}))

    def tried(self, chosen: Sequence[Mutant]) -> Iterator[tuple[Mutant, str]]:
        """Yield each mutant with the test that notices it, or what else does; "" if none does."""
        by_name = {mutant.name: mutant for mutant in chosen}
        warm = [mutant for mutant in chosen if mutant.in_function and self.named(mutant)]
        again = [mutant for mutant in chosen if mutant not in warm]
        tries = [(mutant, self.named(mutant)) for mutant in warm]
        files = sorted({name.partition("::")[0] for _, names in tries for name in names})
        for name, noticed in self._answers(files, tries=tries):
            if noticed in ("", FRESH):
                again.append(by_name[name])
            else:
                yield by_name[name], noticed
        for mutant in again:
            yield mutant, self._tried_fresh(mutant)

    def named(self, mutant: Mutant) -> list[str]:
        """Return the tests that may notice a mutant: those that execute a line of its statement, or of its file where
        the statement runs at import. The units of its package come first, then the cheapest.
        """
        base, lines = self._index[mutant.file], range(mutant.first, mutant.last + 1)
        if not mutant.in_function:
            lines = range(len((self._root / "src/aliquot" / mutant.file).read_bytes().splitlines()) + 1)
        marks, units = {base + line for line in lines}, f"tests/unit/{Path(mutant.file).parent.as_posix()}/"
        passing = [
            (not name.startswith(units), seconds, name) for name, (seconds, _) in self.lines.items() if seconds >= 0
        ]
        readers = () if mutant.in_function else READERS
        return [
            name
            for *_, name in sorted(passing)
            if name.startswith(readers) or not marks.isdisjoint(self.lines[name][1])
        ]

    def _tried_fresh(self, mutant: Mutant) -> str:
        """Try a mutant in a run that was started with it. A test that fails must pass in such a run without it."""
        while names := [name for name in self.named(mutant) if self._sound.get(name, True)]:
            noticed = self._fresh(mutant, names, mutant)
            if noticed in names and noticed not in self._sound:
                self._sound[noticed] = not self._fresh(mutant, [noticed], None)
            if self._sound.get(noticed, True):
                return noticed
        return ""

    def _fresh(self, mutant: Mutant, names: Sequence[str], applied: Mutant | None) -> str:
        path = self._copy / "src/aliquot" / mutant.file
        source = path.read_bytes()
        write(path, applied.applied(source) if applied else source)
        files = sorted({name.partition("::")[0] for name in names})
        try:
            answers = list(self._answers(files, tries=[(mutant, names)], fresh=True))
        finally:
            write(path, source)
        return answers[0][1] if answers else "the tests cannot be collected"

    def _answers(
        self,
        tests: Sequence[str],
        *,
        tries: Sequence[tuple[Mutant, Sequence[str]]] = (),
        measure: bool = False,
        fresh: bool = False,
    ) -> Iterator[list[Any]]:
        """Start a run of the tests for a job, and yield what it answers while it runs."""
        if not tests:
            return
        job, out = self._copy / "job.json", self._copy / "answers"
        words = {"copy": str(self._copy), "out": str(out), "tests": tests, "known": self.lines, "fresh": fresh}
        job.write_text(json.dumps({**words, "measure": measure, "tries": tries}))
        out.write_bytes(b"")
        env = {**os.environ, "PYTHONPATH": str(self._copy / "src"), "TMPDIR": str(self._copy / "tmp")}
        env |= {"ALIQUOT_SEED": "mutation"}
        for name in ("PYTHONDONTWRITEBYTECODE", "ALIQUOT_MEASURED"):
            env.pop(name, None)
        command = [sys.executable, str(ROOT / "tools/contained.py"), sys.executable, str(RUNNER / "warm_tests.py")]
        with (self._copy / "log").open("wb") as log, out.open() as answers:
            running = subprocess.Popen([*command, str(job)], cwd=self._root, env=env, stdout=log, stderr=log)
            ended = False
            while not ended:
                ended = running.poll() is not None
                for line in answers:
                    yield json.loads(line)
                time.sleep(0.05)
        if running.returncode and not fresh:
            raise SystemExit(f"the tests cannot be run:\n{(self._copy / 'log').read_text()[-2000:]}")


@contextmanager
def runner(root: Path, tests: Sequence[str] = TESTS) -> Iterator[Runner]:
    """Give a runner over a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="aliquot-mutants-", ignore_cleanup_errors=True) as folder:
        yield Runner(root, Path(folder), tests)


def drawn(root: Path, seed: str, count: int) -> list[Mutant]:
    """Return ``count`` mutants of a checkout, the same ones for the same seed and sources."""
    every = mutants(root)
    return random.Random(seed).sample(every, min(count, len(every)))


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--seed", default="1")
    asked.add_argument("--count", type=int, default=100)
    asked.add_argument("--root", type=Path, default=ROOT)
    asked.add_argument("--areas", nargs="*", default=list(AREAS), choices=AREAS)
    asked.add_argument("--only", nargs="*", default=[])
    asked.add_argument("--tests", nargs="*", default=TESTS)
    asked.add_argument("--out", type=Path)
    asked.add_argument("--lines", type=Path)
    given = asked.parse_args()
    root = given.root.resolve()
    chosen = [each for each in drawn(root, given.seed, given.count) if each.area in given.areas]
    chosen = [each for each in chosen if not given.only or each.name in given.only]
    results: dict[str, str] = json.loads(given.out.read_bytes()) if given.out and given.out.exists() else {}
    began = time.monotonic()
    with runner(root, given.tests) as tries:
        tries.measure(given.lines)
        print(f"{len(tries.lines)} tests measured, {time.monotonic() - began:.0f} s", flush=True)
        for mutant, noticed in tries.tried([each for each in chosen if not results.get(each.name)]):
            results[mutant.name] = noticed
            print(f"{'noticed ' if noticed else 'survived'}  {mutant.name!r}  {noticed}", flush=True)
            if given.out:
                given.out.write_text(json.dumps(results, indent=1))
    _summary(chosen, results, time.monotonic() - began)
    return 0


def _summary(chosen: Sequence[Mutant], results: dict[str, str], seconds: float) -> None:
    for area in AREAS:
        of_area = [results.get(each.name, "") for each in chosen if each.area == area]
        print(f"{area}: {sum(map(bool, of_area))} of {len(of_area)} noticed")
    every = [results.get(each.name, "") for each in chosen]
    print(f"all: {sum(map(bool, every))} of {len(every)} noticed, {seconds:.0f} s")


if __name__ == "__main__":
    sys.exit(main())
