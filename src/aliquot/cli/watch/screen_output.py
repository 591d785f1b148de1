"""What watching finds as a terminal shows it: one picture in place of the last, with a mark at what is new."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence

import msgspec

from aliquot.cli.framework import color as colour
from aliquot.cli.framework import next_command as following
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
_CELL = r"(?:\x1b\[\d+m)?[\w.]{1,2}(?:\x1b\[0m)?"
_SLICES = re.compile(rf"(?<=\S) {{2,}}(?={_CELL}(?: {{1,2}}{_CELL})+$)")
_GAP = re.compile(r"(?<=\S) {2,}(?=\S)")
_INDENT = " " * 6


class ScreenState(msgspec.Struct):
    """Everything that is on the screen. Times are seconds of wall time; ``top`` is the first line of the body shown."""

    seconds: float
    body: tuple[str, ...] = ()
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
    """On a screen of its own."""

    def __init__(self, args: Args, seconds: float) -> None:
        self.screen = Screen()
        self._state = ScreenState(seconds, tinted=colour.wanted(), node=args.typed_node, keys=self.screen.keyboard >= 0)

    @property
    def keyboard(self) -> int:
        return self.screen.keyboard

    def show(self, snapshot: WatchSnapshot, found: tuple[InventoryChange, ...], first: bool) -> None:
        self._state = after(self._state, snapshot.text, [c.text for c in found], time.time(), first)
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


def after(state: ScreenState, text: str, texts: Sequence[str], now: float, first: bool) -> ScreenState:
    """The state after a look that succeeded. ``texts`` say what changed."""
    body = tuple(streams.plain(text).splitlines())
    new = frozenset() if first else marks(state.body, body)
    state = msgspec.structs.replace(state, body=body, observed_at=now, failure=None)
    if new:
        state.marked, state.marked_at = new, now
    if texts and not first:
        clock = _clock(now)
        state.recent = (*state.recent, *(f"{clock}  {streams.plain(t)}" for t in texts))[-_RECENT:]
    return state


def marks(before: Sequence[str], now: Sequence[str]) -> frozenset[str]:
    """The lines that are new, as ``essence`` has them."""
    return frozenset(map(essence, now)) - frozenset(map(essence, before))


def essence(line: str) -> str:
    """What a line says, whatever its colours, columns and, in tables, the letter that the picture gave it."""
    words = _COLOUR.sub("", line).split()
    return " ".join(words[1:] if len(words) > 1 and len(words[0]) == 1 and words[0].isalpha() else words)


def frame(state: ScreenState, now: float, columns: int, rows: int) -> list[str]:
    """The lines of the whole screen."""
    head, foot = _around(state, now, columns, rows)
    height = max(1, rows - len(head) - len(foot))
    lines = _body(state, now, columns)
    if len(lines) <= height:
        return [*head, *lines, *foot]
    top = min(state.top, len(lines) - height + 1)
    last = min(top + height - 1, len(lines))
    more = f"-- lines {top + 1} to {last} of {len(lines)}: arrows, PgUp and PgDn move --"
    return [*head, *lines[top:last], colour.paint(more, colour.DIM, state.tinted), *foot]


def _around(state: ScreenState, now: float, columns: int, rows: int) -> tuple[list[str], list[str]]:
    """What stands above and below the picture. Where there is no room for everything it is the past that goes."""
    head, foot = _head(state, now, columns)[: max(1, rows - 2)], _foot(state)
    return head, foot if len(head) + len(foot) <= rows // 2 else []


def _body(state: ScreenState, now: float, columns: int) -> list[str]:
    """The picture, what is new marked, and lines that are too long for the terminal continued on the next."""
    fresh = state.marked if now - state.marked_at <= max(MARKED_S, state.seconds) else frozenset()
    found = []
    for line in state.body:
        first, *rest = wrapped(line, columns - 2)
        found += [_marked(first, line, fresh, state.tinted), *(f"  {part}" for part in rest)]
    return found


def wrapped(line: str, columns: int) -> list[str]:
    """A line in parts that fit, broken before the slices of a picture, which so stay together and below their numbers;
    else at the last gap between columns, else between words.
    """
    if _length(line) <= columns:
        return [line]
    slices = _SLICES.search(line)
    for gap in [slices] if slices else reversed(list(_GAP.finditer(line))):
        rest = _INDENT + line[gap.end() :]
        if _length(rest) <= columns:
            return [*wrapped(line[: gap.start()], columns), rest]
    end = line.rfind(" ", len(_INDENT), columns + 1)
    if end < 0 or not line[:end].strip() or "\x1b" in line:
        return [line]
    return [line[:end].rstrip(), *wrapped(_INDENT + line[end:].lstrip(), columns)]


def _length(line: str) -> int:
    return len(_COLOUR.sub("", line))


def _marked(line: str, whole: str, fresh: frozenset[str], tinted: bool) -> str:
    new = whole.strip() and essence(whole) in fresh
    return (colour.paint("* ", colour.BOLD, tinted) if new else "  ") + line


def _head(state: ScreenState, now: float, columns: int) -> list[str]:
    ends = "q ends, space looks now" if state.keys else "Ctrl-C ends"
    first = _clock(state.observed_at) if state.observed_at else "looking ..."
    entries = [(f"{first}   every {state.seconds:g} s   {ends}, * marks what is new", colour.DIM)]
    if state.change is not None:
        pause = " (nobody looks meanwhile: it needs the GPUs for itself)" if state.change.exclusive else ""
        entries.append((f"{state.change}{pause}", colour.YELLOW))
    if state.failure is not None:
        age = f"STALE, {_age(now - state.observed_at)} old: " if state.observed_at else ""
        entries.append((f"{age}{state.failure.brief}", colour.RED))
        if state.failure.next_step:
            entries.append((f"  next     {following.addressed(state.failure.next_step, state.node)}", ""))
    lines = entries[:1] + [(part, code) for text, code in entries[1:] for part in wrapped(streams.plain(text), columns)]
    return [*(colour.paint(part, code, state.tinted) if code else part for part, code in lines), ""]


def _foot(state: ScreenState) -> list[str]:
    if not state.recent:
        return []
    return ["", *(colour.paint(line, colour.DIM, state.tinted) for line in state.recent)]


def scrolled(state: ScreenState, key: str, columns: int, rows: int) -> int:
    """The first line of the body that is shown after a key."""
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
