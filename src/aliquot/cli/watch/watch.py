"""``--watch``: repeat a verb, in place on a terminal, with a line per change elsewhere."""

from __future__ import annotations

import gc
import os
import select
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Protocol

from aliquot.cli.framework import screen, streams
from aliquot.cli.framework.parser import Args
from aliquot.cli.watch.child_process import ObservationProcess, SnapshotReader, WatchAnswer, WatchFailure
from aliquot.cli.watch.snapshot import WatchSnapshot
from aliquot.core.rendering.diff_text import InventoryChange, changes
from aliquot.errors import AliquotError, UsageError
from aliquot.foundation import signals
from aliquot.hardware.state.current_run import CurrentRun, read_current_run

LEAST_S = 0.1
PATIENCE_S = 10.0
"""Seconds after which a sample counts as failed; a driver that loads takes seconds."""

_PASSING = ("NO_DRIVER", "HARDWARE", "GPU_LOST", "IN_USE", "NO_ANSWER")
"""Errors that may pass: watching goes on even if the first sample has one. Others end it, as without ``--watch``."""

Words = tuple[InventoryChange, ...]


class WatchSink(Protocol):
    """A sink for the results of ``--watch``."""

    @property
    def keyboard(self) -> int:
        """The file descriptor of the keyboard, -1 without one."""
        ...

    def show(self, snapshot: WatchSnapshot, found: Words, first: bool) -> None:
        """Show a successful sample, and the changes since the previous one."""
        ...

    def show_failure(self, failure: WatchFailure) -> None:
        """Show a failed sample. The last successful one stays visible."""
        ...

    def show_change(self, change: CurrentRun | None) -> None:
        """Show which process changes the GPUs, None after it has ended."""
        ...

    def refresh(self) -> None:
        """Draw again, because time has passed or the terminal has another size."""
        ...

    def pressed(self) -> list[str]:
        """Return the keys that this sink does not handle itself, by their meaning."""
        ...

    def pause(self) -> None: ...
    def resume(self) -> None: ...


def interval(args: Args) -> float:
    """Return the seconds between two samples. Raises UsageError."""
    if not LEAST_S <= args.watch < float("inf"):
        raise UsageError(
            f"--watch {args.watch:g}: the number after it is the seconds between two samples, at least {LEAST_S:g}",
            details=("put a GPU before it: aliquot show 0 --watch",) if hasattr(args, "gpus") else (),
            next_step=f"{args.prog} --watch",
        )
    return float(args.watch)


def watch(read: SnapshotReader, args: Args) -> int:
    """Sample until Ctrl-C or q, and return 0.

    Raises the errors of the command line and of the first sample. Later failures are shown, and watching goes on.
    """
    seconds = interval(args)
    if args.output == "markdown":
        raise UsageError("--watch cannot be combined with -o markdown", next_step=f"{args.prog} -o markdown")
    gc.enable()  # disabled for commands that end at once
    if args.output == "text" and screen.able():
        from aliquot.cli.watch.screen_output import ScreenSink

        sink = ScreenSink(args, seconds)
        with _taken(sink.screen):
            return _Watch(read, args, seconds, sink).run()
    from aliquot.cli.watch.line_output import LineSink

    return _Watch(read, args, seconds, LineSink(args)).run()


@contextmanager
def _taken(terminal: screen.Screen) -> Iterator[None]:
    try:
        terminal.enter()
        yield
    finally:
        terminal.leave()


class _Watch:
    """The loop: it starts samples when they are due, and handles answers, keys and signals as they come."""

    def __init__(self, read: SnapshotReader, args: Args, seconds: float, sink: WatchSink) -> None:
        self._read, self._args, self._seconds, self._sink = read, args, seconds, sink
        self._last: WatchSnapshot | None = None
        self._process: ObservationProcess | None = None
        self._due = self._began = 0.0
        self._killed = False
        self._reported: set[str] = set()

    def run(self) -> int:
        wake, waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            with signals.interruptible(), _terminal_signals(waker, self._stop):
                while True:
                    self._begin()
                    if not self._wait(wake):
                        return 0
        except KeyboardInterrupt as stop:  # Ctrl-C is the normal end, not a failure
            number = getattr(stop, "number", signal.SIGINT)
            return 0 if number == signal.SIGINT else 128 + number
        finally:
            if self._process is not None:
                self._process.kill()
            os.close(wake)
            os.close(waker)

    def _begin(self) -> None:
        """Start a sample if one is due and none runs. Report and kill one that takes too long."""
        now = time.monotonic()
        if self._process is not None:
            if now - self._began > PATIENCE_S:
                self._sink.show_failure(_silent(now - self._began))
                if not self._killed:
                    self._process.kill()
                    self._killed = True
            return
        if now < self._due:
            return
        self._due = now + self._seconds
        change = _changing(self._args.sim)
        self._sink.show_change(change)
        if change is not None and change.exclusive:
            return  # an open session would block the change
        self._began, self._killed = now, False
        self._process = ObservationProcess(self._read, self._args)

    def _wait(self, wake: int) -> bool:
        """Sleep until there is something to do. Returns False to quit."""
        now = time.monotonic()
        until = min(self._due, now + 1.0) if self._process is None else now + 1.0
        poll = select.poll()
        for handle in filter(
            lambda handle: handle >= 0, (wake, self._sink.keyboard, self._process.pipe if self._process else -1)
        ):
            poll.register(handle, select.POLLIN)
        poll.register(1, 0)  # reports when the reader of our stdout has gone
        ready = dict(poll.poll(max(0.0, until - now) * 1000))
        if ready.get(1, 0) & (select.POLLERR | select.POLLHUP | select.POLLNVAL):
            raise BrokenPipeError
        if wake in ready:
            os.read(wake, 4096)
        if self._process is not None and self._process.pipe in ready:
            answer = self._process.answer()
            if answer is not None:
                self._process = None
                self._settle(answer)
        if self._sink.keyboard in ready:
            for key in self._sink.pressed():
                if key == "quit":
                    return False
                self._due = 0.0
        self._sink.refresh()
        return True

    def _settle(self, answer: WatchAnswer) -> None:
        for line in answer.notes:
            if line not in self._reported:
                self._reported.add(line)
                self._sink_note(line)
        if answer.failure is not None:
            # A sample that was killed has no answer of its own.
            failure = _silent(PATIENCE_S) if self._killed else answer.failure
            if self._last is None and failure.code not in _PASSING:
                raise failure.error
            self._sink.show_failure(failure)
            return
        snapshot = answer.shown
        assert snapshot is not None
        found: Words = changes(self._last.inventory, snapshot.inventory) if self._last else ()
        first, self._last = self._last is None, snapshot
        self._sink.show(snapshot, found, first)

    def _sink_note(self, line: str) -> None:
        """Print a note of a sample to stderr, but not into the middle of a picture."""
        if self._sink.keyboard < 0:
            streams.note(line)

    def _stop(self) -> None:
        """Restore the terminal while the process is stopped by Ctrl-Z."""
        self._sink.pause()
        previous = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, previous)
        self._sink.resume()


def _silent(seconds: float) -> WatchFailure:
    step = "look for Xid messages in the kernel log (dmesg | grep -i xid)"
    return WatchFailure("NO_ANSWER", 40, f"no answer for {seconds:.0f} s: the driver may hang", next_step=step)


def _changing(node: str | None) -> CurrentRun | None:
    try:
        return read_current_run(node)
    except AliquotError:
        return None


@contextmanager
def _terminal_signals(waker: int, stop: Callable[[], None]) -> Iterator[None]:
    """Wake the loop when the terminal's size changes, and restore the terminal before Ctrl-Z stops the process."""

    def woken(number: int, frame: FrameType | None) -> None:
        return

    wanted = {
        signal.SIGWINCH: woken,
        signal.SIGTSTP: lambda number, frame: stop(),
    }
    previous = {number: signal.signal(number, action) for number, action in wanted.items()}
    wakeup = signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(wakeup)
        for number, action in previous.items():
            signal.signal(number, action)
