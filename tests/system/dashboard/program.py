"""``aliquot dashboard`` as a program of its own, over a state directory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from support import forkserver

SOURCE = str(Path(__file__).resolve().parents[3] / "src")


def environment(state: Path, **more: str) -> dict[str, str]:
    kept = {n: v for n, v in os.environ.items() if not n.startswith("ALIQUOT_") or n == "ALIQUOT_CACHE_DIR"}
    return {**kept, "PYTHONPATH": SOURCE, "ALIQUOT_STATE_DIR": str(state), "PYTHONUNBUFFERED": "1", **more}


def aliquot(state: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Any other verb, to its end."""
    command = [sys.executable, "-m", "aliquot", *words]
    return forkserver.run(command, env=environment(state), capture_output=True, text=True, timeout=60, check=False)


class Program:
    """``told`` is stderr so far. Leaving the block ends it."""

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
    def told(self) -> str:
        return "".join(self._lines)

    @property
    def link(self) -> str:
        """What it printed for people to open."""
        self.until(lambda: bool(self._out))
        return self._out[0].strip()

    @property
    def url(self) -> str:
        return "/".join(self.link.split("/")[:3])

    def until(self, holds: object) -> None:
        """Waits for it. Fails at once where the program ended."""
        deadline = time.monotonic() + 60
        while not holds():  # type: ignore[operator]
            assert self._process.poll() is None, self.told
            assert time.monotonic() < deadline, self.told
            time.sleep(0.02)

    def signal(self, number: int = signal.SIGINT) -> None:
        self._process.send_signal(number)

    def wait(self) -> int:
        """Its exit code."""
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
