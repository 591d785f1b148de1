"""A pytest run that has collected its tests once and forks for each mutant: `python .../warm_tests.py JOB`.

A fork puts the mutant into the functions that are loaded already. Later imports, and other processes, get it from the
mutated file. Mutants of code that runs at import need a fresh run instead, which reads them from the file.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import mmap
import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NoReturn

import pytest
from _pytest.runner import runtestprotocol

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))

from tools.mutation_runner.operators import Mutant  # noqa: E402

MOST_S = 60.0
"""Seconds after which no further test of a mutant starts."""
PATIENCE_S, PATIENCE = 10.0, 3
"""A test hangs when it takes this much longer than without the mutant: seconds and times."""
FRESH = "fresh"
"""The answer for a mutant that a fork cannot take."""
_SUBREAPER = 36
Tests = dict[str, tuple[float, list[int]]]
"""Each test's seconds, and the marks (bytes of the map) of the lines that it executes."""


class Job:
    """A job: the file that the command names, as JSON. ``copy`` is the folder of the copied sources."""

    def __init__(self, path: str) -> None:
        read = json.loads(Path(path).read_bytes())
        self.copy = Path(read["copy"])
        self.out = Path(read["out"])
        self.tests: list[str] = read["tests"]
        self.known: Tests = read["known"]
        self.tries: list[tuple[Mutant, list[str]]] = [(Mutant(*m), names) for m, names in read["tries"]]
        self.fresh: bool = read["fresh"]
        self.measure: bool = read["measure"]

    def answer(self, *values: Any) -> None:
        with self.out.open("a") as file:
            file.write(json.dumps(values) + "\n")


class Forks:
    """The plugin: instead of running the tests it does the job."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._sound: dict[str, bool] = {}
        self._children: set[int] = set()
        self._items: dict[str, pytest.Item] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._items = {item.nodeid: item for item in session.items}
        ctypes.CDLL(None).prctl(_SUBREAPER, 1)
        self._children = set(_children())
        if self._job.measure:
            self._measure()
        for mutant, names in self._job.tries:
            self._job.answer(mutant.name, self._tried(mutant, names))
        return True

    def _measure(self) -> None:
        """Answer with the seconds and lines of each test that passes and is not known yet."""
        items = [item for name, item in self._items.items() if name not in self._job.known]
        with (self._job.copy / "lines/map").open("r+b") as file:
            marks = mmap.mmap(file.fileno(), 0)

        def run(send: Callable[..., None]) -> None:
            for n, item in enumerate(items):
                marks[:] = bytes(len(marks))
                began = time.monotonic()
                passed = _passes(item, items[n + 1 : n + 2])
                lines = [n for n, mark in enumerate(bytes(marks)) if mark]
                send(item.nodeid, round(time.monotonic() - began, 3) if passed else -1, lines)

        for answer in self._forked(run, lambda: 600.0):
            self._job.answer(*answer)

    def _tried(self, mutant: Mutant, names: Sequence[str]) -> str:
        """Return the test that notices a mutant, or a text if it hangs; "" if none does."""
        path = self._job.copy / "src/aliquot" / mutant.file
        source = path.read_bytes()
        mutated = source if self._job.fresh else mutant.applied(source)
        write(path, mutated)
        left = [name for name in names if name in self._items and self._sound.get(name, True)]
        try:
            while True:
                name, passed = self._first_failure(mutant, left, source, mutated)
                if name in ("", FRESH) or passed is None:
                    return f"{name} hangs or ends the process" if passed is None else name
                if self._is_sound(name, path, source):
                    return name
                left.remove(name)
        finally:
            write(path, source)

    def _first_failure(
        self, mutant: Mutant, names: Sequence[str], source: bytes, mutated: bytes
    ) -> tuple[str, bool | None]:
        """Run tests in a fork that has the mutant. Return the first one that fails, with None where the fork ends or
        hangs in it; "" and True where all pass.
        """
        began, done = time.monotonic(), 0

        def run(send: Callable[..., None]) -> None:
            path = str(self._job.copy / "src/aliquot" / mutant.file)
            if not self._job.fresh and not _patched(path, source, mutated):
                send(FRESH, False)
                return
            items = [self._items[name] for name in names]
            for n, item in enumerate(items):
                # A test that is late now and then must fail twice.
                passed = _passes(item, items[n + 1 : n + 2]) or _passes(item, items[n + 1 : n + 2])
                send(item.nodeid, passed)
                if not passed or time.monotonic() - began > MOST_S:
                    break
            send("", True)

        def patience() -> float:
            seconds = self._job.known[names[done]][0] if done < len(names) else 0.0
            return PATIENCE_S + 2 * PATIENCE * seconds

        for name, passed in self._forked(run, patience):
            if not name or not passed:
                return name, passed
            done += 1
        return (names[done], None) if done < len(names) else ("the end", None)

    def _is_sound(self, name: str, path: Path, source: bytes) -> bool:
        """Report whether a test that failed passes without the mutant, by itself and in a fork too."""
        if self._job.fresh:
            return True
        if name not in self._sound:
            mutated = path.read_bytes()
            write(path, source)
            answers = self._forked(lambda send: send(_passes(self._items[name], ())), lambda: 120.0)
            self._sound[name] = [True] in list(answers)
            write(path, mutated)
        return self._sound[name]

    def _forked(self, run: Callable[[Callable[..., None]], None], patience: Callable[[], float]) -> Iterator[list[Any]]:
        """Yield what a fork sends, until it ends or is silent for too long. Nothing that it starts outlives it."""
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            _run(run, writing)
        os.close(writing)
        try:
            with os.fdopen(reading, "rb") as pipe:
                while select.select([pipe], [], [], patience())[0] and (line := pipe.readline()):
                    yield json.loads(line)
        finally:
            self._end_all()
            shutil.rmtree(self._job.copy / "tmp", ignore_errors=True)
            (self._job.copy / "tmp").mkdir(exist_ok=True)

    def _end_all(self) -> None:
        while left := set(_children()) - self._children:
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            for pid in left:
                with suppress(ChildProcessError):
                    os.waitpid(pid, 0)


def _run(run: Callable[[Callable[..., None]], None], writing: int) -> NoReturn:
    """Run in the fork, and exit without the interpreter's cleanup."""

    def send(*values: Any) -> None:
        body = json.dumps(values).encode() + b"\n"
        while body:
            body = body[os.write(writing, body) :]

    try:
        run(send)
    finally:
        os._exit(0)


def _children() -> Iterator[int]:
    for task in Path("/proc/self/task").iterdir():
        yield from map(int, (task / "children").read_text().split())


def _passes(item: pytest.Item, following: Sequence[pytest.Item]) -> bool:
    reports = runtestprotocol(item, log=False, nextitem=next(iter(following), None))
    return not any(report.failed for report in reports)


def write(path: Path, source: bytes) -> None:
    """Replace a source and forget its bytecode, which may be as old and as long."""
    path.write_bytes(source)
    for each in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        each.unlink()


def _patched(path: str, source: bytes, mutated: bytes) -> bool:
    """Give the functions that are loaded their mutated code; whether the process has the mutant now."""
    importlib.invalidate_caches()
    if all(getattr(module, "__file__", None) != path for module in list(sys.modules.values())):
        return True
    changed: dict[CodeType, CodeType] = {}
    _compare(compile(source, path, "exec"), compile(mutated, path, "exec"), changed)
    gc.unfreeze()
    functions = [f for f in gc.get_objects() if isinstance(f, FunctionType) and f.__code__ in changed]
    try:
        for function in functions:
            function.__code__ = changed[function.__code__]
    except ValueError:  # it has other variables of the functions around it now
        return False
    return bool(functions)


def _compare(old: CodeType, new: CodeType, changed: dict[CodeType, CodeType]) -> None:
    if old == new:
        return
    changed[old] = new
    olds, news = ([each for each in code.co_consts if isinstance(each, CodeType)] for code in (old, new))
    for one, other in zip(olds, news, strict=False):
        if one.co_name == other.co_name:
            _compare(one, other, changed)


def main(path: str) -> int:
    job = Job(path)
    words = ["-n", "0", "-q", "--tb=no", f"--basetemp={job.copy}/tmp/p", *job.tests]
    return int(pytest.main(words, plugins=[Forks(job)]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
