"""``aliquot dashboard`` as a separate process, with a state directory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from support import forkserver
from support.processes import until

SOURCE = str(Path(__file__).resolve().parents[3] / "src")


def environment(state: Path, **more: str) -> dict[str, str]:
    kept = {n: v for n, v in os.environ.items() if not n.startswith("ALIQUOT_") or n == "ALIQUOT_CACHE_DIR"}
    return {**kept, "PYTHONPATH": SOURCE, "ALIQUOT_STATE_DIR": str(state), "PYTHONUNBUFFERED": "1", **more}


def aliquot(state: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run another command and wait for its end."""
    command = [sys.executable, "-m", "aliquot", *words]
    return forkserver.run(command, env=environment(state), capture_output=True, text=True, timeout=60, check=False)


class Program:
    """A running dashboard process. ``reported`` is its stderr so far. Leaving the block stops it."""

    def __init__(self, state: Path, *words: str, **variables: str) -> None:
        command = [sys.executable, "-m", "aliquot", "dashboard", "--listen", "127.0.0.1:0", *words]
        self._process = forkserver.Popen(
            command, env=environment(state, **variables), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self._lines: list[str] = []
        self._out: list[str] = []
        self._readers = [
            threading.Thread(target=self._read, args=(self._process.stdout, self._out)),
            threading.Thread(target=self._read, args=(self._process.stderr, self._lines)),
        ]
        for reader in self._readers:
            reader.start()

    @staticmethod
    def _read(file: object, lines: list[str]) -> None:
        with file as open_file:  # type: ignore[attr-defined]
            for line in open_file:
                lines.append(line)

    @property
    def reported(self) -> str:
        return "".join(self._lines)

    @property
    def link(self) -> str:
        """The printed link."""
        self.until(lambda: bool(self._out))
        return self._out[0].strip()

    @property
    def url(self) -> str:
        return "/".join(self.link.split("/")[:3])

    def until(self, holds: Callable[[], object]) -> None:
        """Wait until a condition holds. Fails at once if the program ends before that."""

        def holds_or_alive() -> object:
            if found := holds():
                return found
            assert self._process.poll() is None, self.reported
            return None

        until(holds_or_alive, lambda: str(self.reported), pause_s=0.02)

    def signal(self, number: int = signal.SIGINT) -> None:
        self._process.send_signal(number)

    def wait(self) -> int:
        """Wait for the end of the process and return its exit code."""
        code = self._process.wait(60)
        for reader in self._readers:
            reader.join(30)
        return code

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self.wait()
