"""``--watch``: the same verb again and again, in place on a terminal, a line per change elsewhere."""

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
"""How long a look may take before it counts as trouble; a driver that loads takes seconds."""

_PASSING = ("NO_DRIVER", "HARDWARE", "GPU_LOST", "IN_USE", "NO_ANSWER")
"""What may heal by itself: the very first look may meet it. Anything else is told at once, as without ``--watch``."""

Words = tuple[InventoryChange, ...]


class WatchSink(Protocol):
    """Where it is shown what watching finds."""

    @property
    def keyboard(self) -> int:
        """What can be read where keys are pressed, -1 without."""
        ...

    def show(self, snapshot: WatchSnapshot, found: Words, first: bool) -> None:
        """A look that succeeded, and what is other than at the one before."""
        ...

    def show_failure(self, failure: WatchFailure) -> None:
        """A look that failed. The last one that did not is what is shown meanwhile."""
        ...

    def show_change(self, change: CurrentRun | None) -> None:
        """Somebody makes a change; None: nobody any more."""
        ...

    def refresh(self) -> None:
        """Time has passed, or the terminal has another size."""
        ...

    def pressed(self) -> list[str]:
        """What keys meant that this sink did not see to itself."""
        ...

    def pause(self) -> None: ...
    def resume(self) -> None: ...


def interval(args: Args) -> float:
    """Seconds between two looks. Raises UsageError."""
    if not LEAST_S <= args.watch < float("inf"):
        raise UsageError(
            f"--watch {args.watch:g}: a number behind it is the seconds between two looks, {LEAST_S:g} at least",
            details=("a GPU stands before it: aliquot show 0 --watch",) if hasattr(args, "gpu") else (),
            next_step=f"{args.prog} --watch",
        )
    return float(args.watch)


def watch(read: SnapshotReader, args: Args) -> int:
    """Looks until Ctrl-C or q, which is a success. Raises what is wrong with the command line, or with the very first
    look; any later trouble is shown, and looking goes on.
    """
    seconds = interval(args)
    if args.output == "markdown":
        raise UsageError("a ticket is written once: -o markdown without --watch", next_step=f"{args.prog} -o markdown")
    gc.enable()  # a command that ends at once does without
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
    """The loop: a look when it is due, its answer when it comes, keys and signals at any time."""

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
        except KeyboardInterrupt as stop:  # Ctrl-C is how a person ends it: no failure
            number = getattr(stop, "number", signal.SIGINT)
            return 0 if number == signal.SIGINT else 128 + number
        finally:
            if self._process is not None:
                self._process.kill()
            os.close(wake)
            os.close(waker)

    def _begin(self) -> None:
        """Starts a look if one is due and none is under way; one that takes too long is told, and ended."""
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
        change = _changing(self._args.node)
        self._sink.show_change(change)
        if change is not None and change.exclusive:
            return  # an open session would be in its way
        self._began, self._killed = now, False
        self._process = ObservationProcess(self._read, self._args)

    def _wait(self, wake: int) -> bool:
        """Sleeps until there is something to do. False to end."""
        now = time.monotonic()
        until = min(self._due, now + 1.0) if self._process is None else now + 1.0
        poll = select.poll()
        for handle in filter(
            lambda handle: handle >= 0, (wake, self._sink.keyboard, self._process.pipe if self._process else -1)
        ):
            poll.register(handle, select.POLLIN)
        poll.register(1, 0)  # the reader of our stdout has gone
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
            # One that was ended by us has nothing to say for itself.
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
        """A remark of a look: beside the result, and not into the middle of a picture."""
        if self._sink.keyboard < 0:
            streams.note(line)

    def _stop(self) -> None:
        """Ctrl-Z: the terminal is given back for as long as we are stopped."""
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
    """A new size wakes the loop, and Ctrl-Z stops it in good order."""

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
