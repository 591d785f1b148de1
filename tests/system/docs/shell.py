"""A single shell for a page: exports, working directory and background jobs last from line to line."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

TIMEOUT_S = 180.0


class Shell:
    """A bash in ``folder``, started through the words of ``before`` (``nsenter ...``). Call ``close`` at the end."""

    def __init__(self, folder: Path, env: Mapping[str, str], before: Sequence[str] = ()) -> None:
        self.folder = folder
        self._notes = folder.parent / "typed"
        self._notes.mkdir(exist_ok=True)
        self._count = 0
        mine, theirs = os.pipe()
        self._answers = mine
        self._process = subprocess.Popen(
            [*before, "bash", "--noprofile", "--norc"],
            cwd=folder,
            env=dict(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(theirs,),
            start_new_session=True,
        )
        self._fd = theirs
        os.close(theirs)
        self._report(f"cd {folder}")

    def run(self, text: str, seconds: float = TIMEOUT_S) -> tuple[int, str]:
        """Run a command. Returns its exit code and what it printed on both streams.

        Raises:
            TimeoutError: it did not end in time
        """
        place = self._written(text)
        self._report(f". {place} </dev/null >{place}.out 2>&1; printf '%s\\n' $? >&{self._fd}")
        ready, _, _ = select.select([self._answers], [], [], seconds)
        printed = Path(f"{place}.out").read_text(errors="replace") if Path(f"{place}.out").exists() else ""
        if not ready:
            raise TimeoutError(f"it did not end in {seconds:.0f} s, and printed:\n{printed}")
        answer = os.read(self._answers, 64).decode().strip()
        return int(answer or 255), Path(f"{place}.out").read_text(errors="replace")

    def background(self, text: str) -> Path:
        """Start a command that keeps running. Returns the file with its output."""
        place = self._written(text)
        Path(f"{place}.out").touch()
        code, answer = self.run(f"{{ exec {self._fd}>&-; . {place}; }} </dev/null >{place}.out 2>&1 &")
        assert code == 0, answer
        return Path(f"{place}.out")

    def close(self) -> None:
        """End the shell and everything that was started in it."""
        with contextlib.suppress(OSError):
            self._report("kill $(jobs -p) 2>/dev/null; wait; exit")
        deadline = time.monotonic() + 20
        while self._process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        assert self._process.stdin
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        os.close(self._answers)

    def _written(self, text: str) -> Path:
        self._count += 1
        place = self._notes / f"{self._count:03}"
        place.write_text(text + "\n")
        return place

    def _report(self, line: str) -> None:
        assert self._process.stdin
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()
