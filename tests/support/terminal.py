"""A terminal for tests: a program on a real pty, and what its user would see.

It knows only the sequences that we send. An unknown sequence fails the test: real terminals might not know it.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import shlex
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import aliquot
from aliquot.foundation.descriptor_wait import wait_readable

SOURCE = str(Path(aliquot.__path__[0]).resolve().parent)
_ORDER = re.compile(r"\x1b\[(\?)?([0-9;]*)([A-Za-z])")
_MODES = {"1049", "25", "7", "2026"}


class Terminal:
    """Lines of characters and a cursor. ``history`` is what scrolled out of the normal screen."""

    def __init__(self, columns: int = 80, rows: int = 24) -> None:
        self.columns, self.rows = columns, rows
        self.modes = {"1049": False, "25": True, "7": True, "2026": False}
        self.history: list[str] = []
        self.painted = 0
        self._normal: list[str] = []
        self._cells = [""] * rows
        self._x = self._y = 0
        self._rest = ""

    @property
    def lines(self) -> list[str]:
        """The lines on the screen, without empty lines at the end."""
        found = [line.rstrip() for line in self._cells]
        while found and not found[-1]:
            found.pop()
        return found

    @property
    def text(self) -> str:
        return "\n".join([*(line.rstrip() for line in self.history), *self.lines])

    def resize(self, columns: int, rows: int) -> None:
        self.columns, self.rows = columns, rows
        self._cells = (self._cells + [""] * rows)[:rows]
        self._x, self._y = min(self._x, columns - 1), min(self._y, rows - 1)

    def feed(self, text: str) -> None:
        text, self._rest = self._rest + text, ""
        at = 0
        while at < len(text):
            char = text[at]
            if char == "\x1b":
                match = _ORDER.match(text, at)
                if match is None:
                    assert re.fullmatch(r"\x1b(\[[?0-9;]*)?", text[at:]), f"no order of ours: {text[at : at + 12]!r}"
                    self._rest = text[at:]
                    return
                self._obey(*match.groups())
                at = match.end()
                continue
            self._put(char)
            at += 1

    def _put(self, char: str) -> None:
        if char == "\r":
            self._x = 0
        elif char == "\n":
            self._down()
        elif char == "\x07":
            return
        else:
            assert char.isprintable(), f"a terminal would take {char!r} for an order"
            if self._x >= self.columns:
                if not self.modes["7"]:
                    return
                self._x = 0
                self._down()
            line = self._cells[self._y].ljust(self._x)
            self._cells[self._y] = line[: self._x] + char + line[self._x + 1 :]
            self._x += 1

    def _down(self) -> None:
        if self._y + 1 < self.rows:
            self._y += 1
            return
        gone = self._cells.pop(0)
        self._cells.append("")
        if not self.modes["1049"]:
            self.history.append(gone)

    def _obey(self, private: str | None, numbers: str, order: str) -> None:
        values = [int(n) if n else 0 for n in numbers.split(";")]
        first = max(1, values[0])
        column = min(self._x, self.columns - 1)  # behind a full line the cursor stands on its last character
        if private:
            assert numbers in _MODES, f"unknown mode ?{numbers}"
            assert order in "hl", f"unknown order ?{numbers}{order}"
            self.modes[numbers] = order == "h"
            if numbers == "2026":
                self.painted += order == "l"
            if numbers == "1049":
                self._swap(order == "h")
        elif order == "m":
            return
        elif order == "H":
            self._y = min(first, self.rows) - 1
            self._x = max(1, values[1] if len(values) > 1 else 1) - 1
        elif order == "A":
            self._y = max(0, self._y - first)
        elif order == "K":
            assert values == [0]
            self._cells[self._y] = self._cells[self._y][:column]
        elif order == "J":
            assert values[0] in (0, 2)
            if values[0] == 0:
                self._cells[self._y] = self._cells[self._y][:column]
            start = 0 if values[0] == 2 else self._y + 1
            self._cells[start:] = [""] * (self.rows - start)
        else:
            raise AssertionError(f"unknown order {numbers}{order}")

    def _swap(self, other: bool) -> None:
        if other:
            self._normal, self._cells = self._cells, [""] * self.rows
        else:
            self._cells = (self._normal + [""] * self.rows)[: self.rows]
            self._y = min(len(self.lines), self.rows - 1)
            self._x = 0


class Played:
    """The command on a pty of its own, with its stdout elsewhere if given. ``shell`` runs it; without one, it runs
    itself.
    """

    def __init__(
        self,
        *words: str,
        columns: int = 100,
        rows: int = 30,
        shell: str = "",
        stdout: int = -1,
        environment: dict[str, str] | None = None,
    ) -> None:
        self.terminal = Terminal(columns, rows)
        self._main, theirs = pty.openpty()
        self._size(columns, rows)
        env = {n: v for n, v in os.environ.items() if n not in ("NO_COLOR", "COLUMNS", "LINES")}
        env |= {"PYTHONPATH": SOURCE, "TERM": "xterm-256color", "TZ": "UTC", **(environment or {})}
        self.process = subprocess.Popen(
            [*shlex.split(shell), sys.executable, "-m", "aliquot", *words],
            stdin=theirs,
            stdout=theirs if stdout < 0 else stdout,
            stderr=theirs,
            env=env,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        self.theirs = theirs
        self.raw = ""

    def _size(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._main, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def resize(self, columns: int, rows: int) -> None:
        """Change the size; the kernel notifies the program with SIGWINCH."""
        self.terminal.resize(columns, rows)
        self._size(columns, rows)

    def type(self, text: str) -> None:
        os.write(self._main, text.encode())

    def read(self, seconds: float = 0.1) -> None:
        """Feed the terminal, once, with the output that arrives within that time."""
        if wait_readable(self._main, seconds):
            try:
                more = os.read(self._main, 1 << 16).decode(errors="replace")
            except OSError:
                return
            self.raw += more
            self.terminal.feed(more)

    def until(self, seen: Callable[[Terminal], object], seconds: float = 60.0) -> Terminal:
        """Read until the screen shows the expected text."""
        deadline = time.monotonic() + seconds
        while self.terminal.modes["2026"] or not seen(self.terminal):
            assert time.monotonic() < deadline, f"not seen in {seconds:g} s:\n{self.terminal.text}"
            if self.process.poll() is not None:  # the rest of its output comes at once
                deadline = min(deadline, time.monotonic() + 1)
            self.read()
        return self.terminal

    def shows(self, text: str, seconds: float = 60.0) -> Terminal:
        return self.until(lambda t: text in t.text, seconds)

    def ended(self, seconds: float = 60.0) -> int:
        """Return the exit code after all output is read."""
        deadline = time.monotonic() + seconds
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"still running:\n{self.terminal.text}"
            self.read()
        while wait_readable(self._main, 0.05):
            before = len(self.raw)
            self.read()
            if len(self.raw) == before:
                break
        return self.process.returncode

    def echoes(self) -> bool:
        """Report whether the terminal shows typed characters, as shells want it."""
        return bool(termios.tcgetattr(self.theirs)[3] & termios.ECHO)

    def close(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGCONT)
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        os.close(self._main)
        os.close(self.theirs)
