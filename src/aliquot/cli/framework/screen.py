"""Full-screen output: each frame replaces the last, keys work without Enter, and the terminal is restored at the end.

rich has no keys, scrolling or marks: it would replace some 150 of the 550 lines of screen and progress. It would add 70
ms of CPU and 6 MiB to each ``--watch`` and each apply on a terminal.
"""

from __future__ import annotations

import os
import sys
import termios
import tty
from collections.abc import Sequence
from typing import Any

_ENTER = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J"
_LEAVE = "\x1b[?7h\x1b[?25h\x1b[?1049l"
_TOGETHER, _SHOW = "\x1b[?2026h", "\x1b[?2026l"
"""Text between the two appears at once, on terminals that support it; others ignore it."""

_KEYS = {
    "q": "quit",
    "\x03": "quit",
    " ": "look",
    "k": "up",
    "\x1b[A": "up",
    "\x1bOA": "up",
    "j": "down",
    "\x1b[B": "down",
    "\x1bOB": "down",
    "b": "page-up",
    "\x1b[5~": "page-up",
    "f": "page-down",
    "\x1b[6~": "page-down",
    "g": "top",
    "\x1b[H": "top",
    "G": "end",
    "\x1b[F": "end",
}


def able() -> bool:
    """Report whether stdout is a terminal that supports full-screen output."""
    shown = sys.stdout is not None and sys.stdout.isatty()
    return shown and os.environ.get("TERM", "dumb") not in ("", "dumb")


class Screen:
    """The terminal of stdout, and of stdin if that is one too. ``enter`` takes it, ``leave`` restores it."""

    def __init__(self) -> None:
        self._out = sys.stdout.fileno()
        self.keyboard = _terminal(sys.stdin)
        self._saved_mode: list[Any] | None = None
        self._shown: tuple[object, ...] = ()
        self._taken = False

    def enter(self) -> None:
        """Switch to the alternate screen, without a cursor. Typed characters are not echoed."""
        if self.keyboard >= 0:
            self._saved_mode = termios.tcgetattr(self.keyboard)
            tty.setcbreak(self.keyboard, termios.TCSADRAIN)
        self._taken = True
        self._shown = ()
        self._write(_ENTER)

    def leave(self) -> None:
        """Restore the shell's screen, its cursor and the keyboard. A second call does nothing."""
        if not self._taken:
            return
        self._taken = False
        if self._saved_mode is not None:
            termios.tcsetattr(self.keyboard, termios.TCSADRAIN, self._saved_mode)
        self._write(_LEAVE)

    @property
    def size(self) -> tuple[int, int]:
        """The present columns and lines. A terminal that does not report them has 80 by 24."""
        found = os.get_terminal_size(self._out)
        return found.columns or 80, found.lines or 24

    def paint(self, lines: Sequence[str]) -> None:
        """Show exactly these lines, in one write. Write nothing if they are shown already."""
        columns, rows = self.size
        frame = tuple(truncate(line, columns) for line in lines[:rows])
        if (columns, rows, frame) == self._shown:
            return
        self._shown = columns, rows, frame
        # A line is emptied before it is written: behind a full one the cursor stands on its last character.
        body = "".join(f"\x1b[{n};1H\x1b[K{line}\x1b[0m" for n, line in enumerate(frame, 1))
        below = f"\x1b[{len(frame) + 1};1H\x1b[J" if len(frame) < rows else ""
        self._write(f"{_TOGETHER}{body}{below}{_SHOW}")

    def pressed(self) -> list[str]:
        """Return the meanings of the keys that were pressed, without those that have none."""
        typed = os.read(self.keyboard, 256).decode(errors="replace")
        if not typed:
            self.keyboard = -1  # the terminal is gone
        return keys(typed)

    def _write(self, text: str) -> None:
        data = text.encode(errors="replace")
        while data:
            data = data[os.write(self._out, data) :]


def _terminal(stream: object) -> int:
    """Return the file descriptor of a stream that is a terminal, else -1."""
    try:
        return stream.fileno() if stream is not None and stream.isatty() else -1  # type: ignore[attr-defined]
    except (AttributeError, OSError, ValueError):
        return -1


def keys(typed: str) -> list[str]:
    """Return the meanings of the characters that a terminal sent, in order."""
    found = []
    while typed:
        match = next((k for k in sorted(_KEYS, key=len, reverse=True) if typed.startswith(k)), "")
        if match:
            found.append(_KEYS[match])
        typed = typed[len(match) or 1 :]
    return found


def clipped(text: str, columns: int) -> str:
    """Return a line without colors that fits, with dots if it is cut."""
    short = truncate(text, columns)
    return text if short == text else truncate(text, columns - 3).removesuffix("\x1b[0m") + "..."


def truncate(text: str, columns: int) -> str:
    """Return the part of a line that fits, and end its colors. Control sequences have no width, wide characters two
    columns.
    """
    if len(text) <= columns and text.isascii():
        return text
    import re
    from unicodedata import combining, east_asian_width

    out, used = [], 0
    for part in re.split(r"(\x1b\[[0-9;]*m)", text):
        if part.startswith("\x1b["):
            out.append(part)
            continue
        for char in part:
            used += 0 if combining(char) else 2 if east_asian_width(char) in "WF" else 1
            if used > columns:
                return "".join(out) + "\x1b[0m"
            out.append(char)
    return "".join(out)
