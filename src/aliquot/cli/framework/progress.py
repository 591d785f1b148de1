"""The progress of a change, below its lines on a terminal: finished actions, what each GPU does, elapsed time."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress

import msgspec

from aliquot.cli.framework import screen, streams
from aliquot.core.engine.action_text import ExecutedAction
from aliquot.core.engine.step_timing import TimedStep
from aliquot.core.model.actions import Action
from aliquot.core.model.inventory import Gpu, Inventory
from aliquot.core.model.plan import Plan
from aliquot.core.model.structured_text import GpuName, Part, StructuredText, parts_of
from aliquot.core.rendering import action_text as action_texts

QUIET_S = 0.3
"""Changes that end within this time show no bar."""

TICK_S = 0.1
_WIDTH = 24
_PROGRESS_VERBS = {"destroy": "destroying", "create": "creating", "set": "setting", "reset": "resetting"}


class GpuProgress(msgspec.Struct):
    """The actions of a GPU, and how many are done. ``remark`` is its last other message, for example whom it waits for;
    it is shown until the next action.
    """

    gpu: Gpu
    actions: tuple[Action, ...]
    done: int = 0
    remark: str = ""

    @property
    def present(self) -> str:
        """The present action: ``creating b 3g.20gb at 4:4``."""
        if self.remark or self.done >= len(self.actions):
            return self.remark
        verb, letter, what = action_texts.describe_action(self.actions[self.done], self.gpu, self.actions)
        return " ".join(filter(None, (_PROGRESS_VERBS.get(verb, verb), letter, what)))


class ProgressState(msgspec.Struct):
    """The state that the bar shows. ``expected`` is the estimated time in seconds, None if unknown; ``failed``: the
    change is being undone.
    """

    gpus: tuple[GpuProgress, ...]
    expected: float | None = None
    failed: bool = False

    @property
    def done(self) -> int:
        return sum(gpu.done for gpu in self.gpus)

    @property
    def count(self) -> int:
        return sum(len(gpu.actions) for gpu in self.gpus)

    def update(self, line: str) -> None:
        """Update the state from a line of progress. Lines that are not about a GPU change nothing."""
        about, *rest = parts_of(line)
        for gpu in self.gpus:
            if about != GpuName(gpu.gpu.pci, ": "):
                continue
            number = _executed(rest, gpu)
            if number is not None and not self.failed:
                gpu.done, gpu.remark = number, ""
            else:
                gpu.remark = str(StructuredText(*rest))


def _executed(parts: Sequence[Part], gpu: GpuProgress) -> int | None:
    """Return how many actions of a GPU are done if this part of a line reports the last of them."""
    executed = {str(part) for part in parts if isinstance(part, ExecutedAction)}
    rest = enumerate(gpu.actions[gpu.done :], gpu.done + 1)
    return next((number for number, action in rest if str(ExecutedAction(action)) in executed), None)


def initial_state(plan: Plan, inventory: Inventory, expected: float | None = None) -> ProgressState:
    """Return the state at the start of a change."""
    known = {g.pci: g for g in inventory.gpus}
    gpus = tuple(GpuProgress(known[pci], actions) for pci, actions in plan.actions_by_gpu.items() if pci in known)
    return ProgressState(gpus, expected)


def lines(state: ProgressState, seconds: float, columns: int, rows: int) -> list[str]:
    """Return the bar, and below it a line for each GPU that is not done, if there are several. All lines fit on the
    terminal.
    """
    width = _WIDTH if columns >= 70 else _WIDTH // 3
    full = width * state.done // max(1, state.count)
    first = f"[{'#' * full}{'.' * (width - full)}]  {state.done} of {state.count} acts   {_time(state, seconds)}"
    busy = [gpu for gpu in state.gpus if gpu.done < len(gpu.actions)]
    word, below = "", []
    if state.failed:
        word = "going back: an act failed"
    elif not busy:
        word = "reading again to prove it"
    elif len(state.gpus) == 1:
        word = busy[0].present
    else:
        most = max(1, rows // 3)
        below = [f"  GPU {gpu.gpu.index}  {gpu.done} of {len(gpu.actions)}  {gpu.present}" for gpu in busy[:most]]
        below += [f"  and {len(busy) - most} more GPUs"] if len(busy) > most else []
    whole = [f"{first}   {word}"] if len(first) + len(word) + 3 < columns else [first, f"  {word}"]
    return [
        streams.plain(screen.clipped(line.rstrip(), columns - 1)) for line in (*(whole if word else [first]), *below)
    ]


def _time(state: ProgressState, seconds: float) -> str:
    if state.expected is None or state.failed:
        return f"{seconds:.1f} s"
    return f"{seconds:.1f} s of about {state.expected:.{0 if state.expected >= 9.5 else 1}f} s"


def wanted() -> bool:
    """Report whether a terminal shows the bar and can redraw a line."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("ALIQUOT_DEBUG")
    return streams.watched() and not streams.quiet and not plain and os.environ.get("TERM", "dumb") not in ("", "dumb")


class ProgressBar:
    """The bar of a change. Notes of any thread stay above it; it disappears at the end."""

    def __init__(self, state: ProgressState) -> None:
        self._state = state
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._began = time.monotonic()
        self._drawn = 0
        self._ticker = threading.Thread(target=self._tick, name="progress", daemon=True)

    def note(self, text: str) -> None:
        """Print a note above the bar, in one write with the bar below it."""
        with self._lock:
            self._state.update(text)
            self._write(f"{streams.plain(text)}\n")

    def step(self, step: TimedStep) -> None:
        """Take a step that has ended: after a failed one, the change is undone."""
        if step.is_action and step.code:
            self._state.failed = True

    @contextmanager
    def shown(self) -> Iterator[None]:
        self._ticker.start()
        try:
            yield
        finally:
            self._over.set()
            self._ticker.join()
            with self._lock:
                self._write("", last=True)

    def _tick(self) -> None:
        while not self._over.wait(TICK_S):
            with self._lock:
                if not self._over.is_set():
                    self._write("")

    def _write(self, above: str, *, last: bool = False) -> None:
        """Erase what is drawn, then write the text that stays and, unless the change is over, the bar again: in one
        write.
        """
        seconds = time.monotonic() - self._began
        drawn = [] if last or seconds < QUIET_S else lines(self._state, seconds, *_size())
        if not (above or drawn or self._drawn):
            return
        back = f"\r\x1b[{self._drawn - 1}A\x1b[J" if self._drawn > 1 else "\r\x1b[J" if self._drawn else ""
        self._drawn = len(drawn)
        with suppress(AttributeError, OSError, ValueError):  # closed: the exit code still reports the failure
            sys.stderr.write(f"{back}{above}" + "\n".join(drawn))
            sys.stderr.flush()


def _size() -> tuple[int, int]:
    try:
        found = os.get_terminal_size(2)
    except OSError:
        return 80, 24
    return found.columns or 80, found.lines or 24


@contextmanager
def _running(bar: ProgressBar) -> Iterator[ProgressBar]:
    with streams.redirected(bar.note), bar.shown():
        yield bar


def progress_bar(state: ProgressState) -> AbstractContextManager[ProgressBar | None]:
    """Show a bar while the block runs, if there is something to do."""
    return _running(ProgressBar(state)) if state.count else nullcontext()
