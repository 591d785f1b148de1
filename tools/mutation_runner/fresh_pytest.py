"""Start ``python -m pytest`` without an interpreter's start: a process that has imported pytest, its plugins and other
packages, but nothing of Aliquot, forks for each request. The fork imports Aliquot from where the request says.

A request is a line of JSON on the standard input, see ``Request``. The answer is a line with the wait status.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
IMPORTED = ("msgspec", "hypothesis.strategies", "anyio._backends._asyncio", "httpx2", "httpcore2", "yaml")
"""Packages that Aliquot and its tests import, if they are installed."""


class Request(NamedTuple):
    """A run of pytest: its words, the folders that come first on the path, and the file for what it prints."""

    words: Sequence[str]
    path: Sequence[str]
    out: str
    env: dict[str, str]


class Server:
    """The process that forks, as its client sees it."""

    def __init__(self) -> None:
        words = [sys.executable, __file__]
        self._process = subprocess.Popen(words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, words: Sequence[str], path: Sequence[str], env: dict[str, str]) -> str:
        """Run pytest and return what it prints. Raises RuntimeError if the server has ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with tempfile.NamedTemporaryFile("r") as out:
            print(json.dumps(Request(words, path, out.name, env)), file=self._process.stdin, flush=True)
            if not self._process.stdout.readline():
                raise RuntimeError("the server that starts pytest has ended")
            return out.read()

    def close(self) -> None:
        """End the server."""
        self._process.communicate()


@contextlib.contextmanager
def server() -> Iterator[Server]:
    """Give a server that ends with the block."""
    started = Server()
    try:
        yield started
    finally:
        started.close()


def _prepare() -> None:
    """Import what every run needs. Plugins must be imported by a run, which rewrites their assertions: an empty one."""
    import pytest

    with tempfile.TemporaryDirectory() as folder, open(os.devnull, "w") as nothing:
        (Path(folder) / "pytest.ini").touch()
        with contextlib.redirect_stdout(nothing):
            pytest.main(["--collect-only", "-qq", "-p", "no:cacheprovider", f"--rootdir={folder}", folder])
    for name in IMPORTED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    loaded = sorted(name for name in sys.modules if name.partition(".")[0] in ("aliquot", "support", "conftest"))
    assert not loaded, f"a fork would keep these modules without the mutant: {', '.join(loaded)}"
    gc.freeze()  # a fork then copies fewer pages


def _become(request: Request) -> int:
    """Run pytest in this process."""
    import pytest

    nothing = os.open(os.devnull, os.O_RDWR)
    for kept, fd in enumerate((nothing, os.open(request.out, os.O_WRONLY), nothing)):
        os.dup2(fd, kept)
    os.environ.clear()
    os.environ.update(request.env)
    sys.path[:1] = [str(ROOT), *request.path]
    sys.argv = [pytest.__file__, *request.words]
    return int(pytest.main(list(request.words)))


def main() -> int:
    """Serve until the client closes the standard input."""
    requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    _prepare()
    while line := requests.readline():
        pid = os.fork()
        if pid == 0:
            return _become(Request(*json.loads(line)))
        print(os.waitpid(pid, 0)[1], file=answers, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
