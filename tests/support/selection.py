"""Choose which long tests a run includes: all of them with ``ALIQUOT_ALL=1``, else a tenth that the commit decides.

A long test is one with the marker ``long``. Commits take turns: ten in a row draw every long test once, and the same
commit always draws the same ones. ``long(about=["src/aliquot/..."])`` names what the test is about, by
paths or their beginnings: it is called for when one of these files changed in the last day of history. A run has up to
``CALLED`` tests that are called for. After a change of the whole tree, which calls for nearly all, each commit runs
other ones: such a change is what ``make test-all`` is for. Tests of the same ``long(name="...")`` are drawn together.
"""

from __future__ import annotations

import functools
import hashlib
import os
import random
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import hypothesis
import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parents[2]
SHARE = 10
"""One long test in so many is drawn."""
CALLED = 100
"""At most so many long tests run because of what changed."""
_DAY_S = 24 * 60 * 60
_Test = TypeVar("_Test", bound=Callable[..., None])


@functools.cache
def seed() -> str:
    """Return the seed of the draw: ``ALIQUOT_SEED``, else the commit after its number, or "none" outside a checkout."""
    commit = (_git("rev-list", "--count", "HEAD").strip(), _git("rev-parse", "--short=12", "HEAD").strip())
    return os.environ.get("ALIQUOT_SEED") or "-".join(filter(None, commit)) or "none"


@functools.cache
def changed() -> frozenset[str]:
    """Return the files that changed in the last day of history, or since the last commit."""
    last = _git("log", "-1", "--format=%ct").strip()
    if not last:
        return frozenset()
    listed = _git("log", f"--since={int(last) - _DAY_S}", "--name-only", "--format=") + _git(
        "diff", "--name-only", "HEAD"
    )
    return frozenset(listed.split("\n")) - {""}


def draw(name: str, sides: int) -> int:
    """Return a number below ``sides`` for ``name``: the next one for the next commit."""
    number = re.match(r"\d+(?=-)", seed())
    turn = int(number[0]) if number else _hash(seed())
    return (_hash(name) + turn) % sides


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def drawn(name: str) -> bool:
    """Report whether this commit's tenth has ``name``."""
    return draw(name, SHARE) == 0


def everything() -> bool:
    """Report whether this run includes all long tests."""
    return os.environ.get("ALIQUOT_ALL") == "1"


def included(tests: Mapping[str, Iterable[str]]) -> frozenset[str]:
    """Return which long tests this run has, from what each is about. Raises UsageError for files that do not exist."""
    for name, about in tests.items():
        for each in about:
            if not _exists(each):
                raise pytest.UsageError(f"{name} is about {each}, but no file has such a name")
    if everything():
        return frozenset(tests)
    turns = {name for name in tests if drawn(name)}
    called = [
        name
        for name, about in tests.items()
        if name not in turns and any(file.startswith(tuple(about)) for file in changed())
    ]
    return frozenset(turns.union(sorted(called, key=lambda name: _hash(f"{seed()} {name}"))[:CALLED]))


@functools.cache
def _exists(beginning: str) -> bool:
    return any(ROOT.glob(f"{beginning}*"))


def samples(most: int) -> int:
    """Return how many random cases of a large state space to try: ``most`` in a full run, else a third."""
    return most if everything() else max(1, most // 3)


def parts(count: int) -> list[Any]:
    """Return the numbers of a state space's parts, or seeds, for ``parametrize``: all but the first are ``slow``."""
    return [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, count))]


def laws(most: int) -> Callable[[_Test], _Test]:
    """Return a decorator for properties: it tries ``samples(most)`` cases, others for each commit."""

    def decorated(test: _Test) -> _Test:
        number = draw(test.__qualname__, 1 << 32)
        every = settings(
            max_examples=samples(most), deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
        )
        return hypothesis.seed(number)(every(test))

    return decorated


def dice(name: str) -> random.Random:
    """Return random choices for the test ``name``: others for each commit, the same for the same one."""
    return random.Random(f"{seed()} {name}")


class Selection:
    """The plugin that deselects the long tests that are not drawn, and counts them."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._run = self._all = 0

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        long: dict[str, set[str]] = {}
        for item in items:
            if mark := item.get_closest_marker("long"):
                long.setdefault(_name(item, mark), set()).update(mark.kwargs.get("about", ()))
        chosen = included(long)
        kept: list[pytest.Item] = []
        left: list[pytest.Item] = []
        for item in items:
            mark = item.get_closest_marker("long")
            named = item.nodeid in config.args  # requested by its full name
            run = mark is None or named or _name(item, mark) in chosen
            (kept if run else left).append(item)
            if mark is not None:
                self._all += 1
                self._run += run
        if left:
            config.hook.pytest_deselected(items=left)
            items[:] = kept

    def pytest_sessionfinish(self) -> None:
        if hasattr(self._config, "workeroutput"):
            self._config.workeroutput["long"] = (self._run, self._all)

    def pytest_testnodedown(self, node: Any) -> None:
        """Read the counts of a worker: they are the same in all."""
        self._run, self._all = getattr(node, "workeroutput", {}).get("long", (self._run, self._all))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        how = "all of them" if everything() else f"drawn by ALIQUOT_SEED={seed()}; make test-all runs all"
        if self._all:
            terminalreporter.write_line(f"long tests: {self._run} of {self._all}, {how}")


def _name(item: pytest.Item, mark: pytest.Mark) -> str:
    """Return the name under which a long test is drawn."""
    return str(mark.kwargs.get("name", item.nodeid))


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Selection(config), "selected-tests")


def _git(*words: str) -> str:
    """Return what git prints, or nothing outside a checkout. Raises UsageError if git refuses to read the checkout."""
    if not (ROOT / ".git").exists() or not shutil.which("git"):
        return ""
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise pytest.UsageError(
            f"which long tests to run depends on git {words[0]}, which failed: {done.stderr.strip()}"
        )
    return done.stdout
