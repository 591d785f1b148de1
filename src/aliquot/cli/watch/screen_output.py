"""The output of ``--watch`` on a terminal: each picture replaces the last, and new lines are marked."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence

import msgspec

from aliquot.cli.framework import color as colors
from aliquot.cli.framework import next_command as next_commands
from aliquot.cli.framework import streams
from aliquot.cli.framework.parser import Args
from aliquot.cli.framework.screen import Screen
from aliquot.cli.watch.child_process import WatchFailure
from aliquot.cli.watch.snapshot import WatchSnapshot
from aliquot.core.rendering.diff_text import InventoryChange
from aliquot.hardware.state.current_run import CurrentRun

MARKED_S = 10.0
"""How long a change stays marked, at least."""

_RECENT = 5
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_INDENT = " " * 6


class ScreenState(msgspec.Struct):
    """The content of the screen, the lines of the ``body`` in columns. ``top`` is the first line of it that is shown.

    Times are seconds of wall time.
    """

    seconds: float
    body: tuple[tuple[str, ...], ...] = ()
    marked: frozenset[str] = frozenset()
    marked_at: float = 0.0
    observed_at: float = 0.0
    failure: WatchFailure | None = None
    change: CurrentRun | None = None
    recent: tuple[str, ...] = ()
    top: int = 0
    tinted: bool = False
    node: str = ""
    keys: bool = True


class ScreenSink:
    """A sink that draws on the terminal's alternate screen."""

    def __init__(self, args: Args, seconds: float) -> None:
        self.screen = Screen()
        self._state = ScreenState(seconds, tinted=colors.wanted(), node=args.typed_node, keys=self.screen.keyboard >= 0)

    @property
    def keyboard(self) -> int:
        return self.screen.keyboard

    def show(self, snapshot: WatchSnapshot, found: tuple[InventoryChange, ...], first: bool) -> None:
        self._state = after(self._state, snapshot.lines, [c.text for c in found], time.time(), first)
        self.refresh()

    def show_failure(self, failure: WatchFailure) -> None:
        self._state.failure = failure
        self.refresh()

    def show_change(self, change: CurrentRun | None) -> None:
        self._state.change = change

    def refresh(self) -> None:
        self.screen.paint(frame(self._state, time.time(), *self.screen.size))

    def pressed(self) -> list[str]:
        rest = []
        for key in self.screen.pressed():
            if key in ("quit", "look"):
                rest.append(key)
            else:
                self._state.top = scrolled(self._state, key, *self.screen.size)
        return rest

    def pause(self) -> None:
        self.screen.leave()

    def resume(self) -> None:
        self.screen.enter()
        self.refresh()


def after(
    state: ScreenState, lines: Sequence[tuple[str, ...]], texts: Sequence[str], now: float, first: bool
) -> ScreenState:
    """Return the state after a successful sample. ``texts`` describe the changes."""
    body = tuple(row for line in lines for row in _rows(tuple(map(streams.plain, line))))
    new = frozenset() if first else marks(map("".join, state.body), map("".join, body))
    state = msgspec.structs.replace(state, body=body, observed_at=now, failure=None)
    if new:
        state.marked, state.marked_at = new, now
    if texts and not first:
        clock = _clock(now)
        state.recent = (*state.recent, *(f"{clock}  {streams.plain(t)}" for t in texts))[-_RECENT:]
    return state


def _rows(line: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Return a line as one row of the screen, or as several if a name in it has a line break."""
    rows = "".join(line).splitlines()
    return [line] if len(rows) < 2 else [(row,) for row in rows]


def marks(before: Iterable[str], now: Iterable[str]) -> frozenset[str]:
    """Return the new lines, in the form of ``essence``."""
    return frozenset(map(essence, now)) - frozenset(map(essence, before))


def essence(line: str) -> str:
    """Return a line without its colours, columns and, in tables, the letter that the picture gave it."""
    words = _COLOUR.sub("", line).split()
    return " ".join(words[1:] if len(words) > 1 and len(words[0]) == 1 and words[0].isalpha() else words)


def frame(state: ScreenState, now: float, columns: int, rows: int) -> list[str]:
    """Return the lines of the whole screen."""
    head, foot = _around(state, now, columns, rows)
    height = max(1, rows - len(head) - len(foot))
    lines = _body(state, now, columns)
    if len(lines) <= height:
        return [*head, *lines, *foot]
    top = min(state.top, len(lines) - height + 1)
    last = min(top + height - 1, len(lines))
    more = f"-- lines {top + 1} to {last} of {len(lines)}: arrows, PgUp and PgDn move --"
    return [*head, *lines[top:last], colors.paint(more, colors.DIM, state.tinted), *foot]


def _around(state: ScreenState, now: float, columns: int, rows: int) -> tuple[list[str], list[str]]:
    """Return the lines above and below the picture. On a small screen the past changes below are left out."""
    head, foot = _head(state, now, columns)[: max(1, rows - 2)], _foot(state)
    return head, foot if len(head) + len(foot) <= rows // 2 else []


def _body(state: ScreenState, now: float, columns: int) -> list[str]:
    """Return the picture with new lines marked, and lines that are too long for the terminal wrapped."""
    fresh = state.marked if now - state.marked_at <= max(MARKED_S, state.seconds) else frozenset()
    found = []
    for line in state.body:
        first, *rest = wrapped(line, columns - 2)
        found += [_marked(first, "".join(line), fresh, state.tinted), *(f"  {part}" for part in rest)]
    return found


def wrapped(parts: Sequence[str], columns: int) -> list[str]:
    """Break a line into lines that fit: before the last of its columns that makes it fit, else between words.

    The memory slices of a picture are one column, so that they stay together and below their numbers.
    """
    line = "".join(parts).rstrip()
    if _length(line) <= columns:
        return [line]
    for n in range(len(parts) - 1, 0, -1):
        rest = _INDENT + "".join(parts[n:]).strip()
        if _length(rest) <= columns:
            return [*wrapped(parts[:n], columns), rest]
    end = line.rfind(" ", len(_INDENT), columns + 1)
    if end < 0 or not line[:end].strip() or "\x1b" in line:
        return [line]
    return [line[:end].rstrip(), *wrapped([_INDENT + line[end:].lstrip()], columns)]


def _length(line: str) -> int:
    return len(_COLOUR.sub("", line))


def _marked(line: str, whole: str, fresh: frozenset[str], tinted: bool) -> str:
    new = whole.strip() and essence(whole) in fresh
    return (colors.paint("* ", colors.BOLD, tinted) if new else "  ") + line


def _head(state: ScreenState, now: float, columns: int) -> list[str]:
    ends = "q quits, space updates now" if state.keys else "Ctrl-C quits"
    first = _clock(state.observed_at) if state.observed_at else "reading ..."
    lines = [(f"{first}   every {state.seconds:g} s   {ends}, * marks changes", colors.DIM)]
    entries: list[tuple[tuple[str, ...], str]] = []
    if state.change is not None:
        pause = " (no samples meanwhile: it needs the GPUs exclusively)" if state.change.exclusive else ""
        entries.append(((f"{state.change}{pause}",), colors.YELLOW))
    if state.failure is not None:
        age = f"STALE, {_age(now - state.observed_at)} old: " if state.observed_at else ""
        entries.append(((f"{age}{state.failure.brief}",), colors.RED))
        if state.failure.next_step:
            entries.append((("  next     ", next_commands.addressed(state.failure.next_step, state.node)), ""))
    for parts, code in entries:
        lines += [(line, code) for line in wrapped([streams.plain(part) for part in parts], columns)]
    return [*(colors.paint(part, code, state.tinted) if code else part for part, code in lines), ""]


def _foot(state: ScreenState) -> list[str]:
    if not state.recent:
        return []
    return ["", *(colors.paint(line, colors.DIM, state.tinted) for line in state.recent)]


def scrolled(state: ScreenState, key: str, columns: int, rows: int) -> int:
    """Return the first line of the body that is shown after a key."""
    head, foot = _around(state, state.observed_at, columns, rows)
    height = max(1, rows - len(head) - len(foot) - 1)
    last = max(0, len(_body(state, state.observed_at, columns)) - height)
    moves: dict[str, Callable[[int], int]] = {
        "up": lambda top: top - 1,
        "down": lambda top: top + 1,
        "page-up": lambda top: top - height,
        "page-down": lambda top: top + height,
        "top": lambda _: 0,
        "end": lambda _: last,
    }
    return min(max(0, moves[key](min(state.top, last))), last)


def _clock(at: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at))


def _age(seconds: float) -> str:
    if seconds < 120:
        return f"{max(0.0, seconds):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
