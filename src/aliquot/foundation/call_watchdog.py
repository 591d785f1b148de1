"""A thread that watches a command's driver calls, reports one that does not return, and lets signals end the command.

Python runs signal handlers in the main thread, between two bytecode instructions. While that thread waits inside a
library or the kernel, Ctrl-C has no effect. The interpreter's C handler still writes the signal's number to a file
descriptor (``signal.set_wakeup_fd``), and this thread reads it.

A thread in uninterruptible sleep inside the kernel outlives its process; only the kernel can end it.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from time import monotonic
from types import TracebackType

from aliquot.foundation import driver_calls, signals
from aliquot.foundation.callbacks import Report
from aliquot.foundation.descriptor_wait import wait_readable

GRACE_S = 1.0
"""Seconds that the main thread may take after a signal to end by itself."""
_POLL_S = 0.25
_END = 0


class CallWatchdog:
    """A watchdog that is active from ``__enter__`` to ``__exit__``.

    ``report`` prints a line; ``leave`` ends the process with an exit code. A call that runs for ``hangs_s`` seconds is
    reported, and again after twice that time. Outside the main thread it only reports, and leaves signals to the main
    thread.
    """

    def __init__(self, report: Report, hangs_s: float, leave: Callable[[int], object] = os._exit) -> None:
        self._report = report
        self._hangs_s = self._notice_s = hangs_s
        self._last_call: driver_calls.DriverCall | None = None
        self._leave = leave
        self._stop_signal: tuple[int, float] | None = None
        self._previous_descriptor = -1
        self._in_main_thread = False

    def __enter__(self) -> CallWatchdog:
        self._read, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._in_main_thread = threading.current_thread() is threading.main_thread()
        if self._in_main_thread:
            self._previous_descriptor = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._thread = threading.Thread(target=self._run, name="driver calls", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._in_main_thread:
            signal.set_wakeup_fd(self._previous_descriptor)
        os.write(self._write, bytes([_END]))
        self._thread.join()
        os.close(self._read)
        os.close(self._write)

    def _run(self) -> None:
        while True:
            # Without a signal there is nothing to check before a call can be late.
            waiting = _POLL_S if self._stop_signal else min(1.0, self._hangs_s / 4)
            numbers = os.read(self._read, 64) if wait_readable(self._read, waiting) else b""
            if _END in numbers:
                return
            insisted = self._note_signals(numbers)
            call = driver_calls.oldest()
            if call is not self._last_call:
                self._last_call, self._notice_s = call, self._hangs_s
            if call is None:
                continue
            if call.seconds >= self._notice_s:
                self._notice_s = 2 * call.seconds
                self._report(f"waiting: {call.sentence}{self._advice}")
            if self._stop_signal is not None:
                self._end(call, *self._stop_signal, insisted=insisted)

    @property
    def _advice(self) -> str:
        if not self._in_main_thread or signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
            return ""
        return (
            "; the command ends when it returns, or now if you press Ctrl-C"
            if self._stop_signal
            else "; press Ctrl-C to end the command"
        )

    def _note_signals(self, numbers: bytes) -> bool:
        """Record the first signal that asks the process to end. Return whether Ctrl-C came after it: a closing session
        may send SIGTERM and SIGHUP, and only a person presses Ctrl-C again.
        """
        insisted = False
        for number in numbers:
            if number in signals.ENDING and self._stop_signal is None:
                self._stop_signal = number, monotonic()
                if signals.changing():
                    self._notice_s = self._hangs_s  # report the call again, with what ends it now
            elif number == signal.SIGINT:
                insisted = True
        return insisted

    def _end(self, call: driver_calls.DriverCall, number: int, at: float, *, insisted: bool) -> None:
        """End the process if a driver call keeps it from ending by itself. A command that only reads loses nothing. A
        change must roll back, and for that its call must return. It is abandoned only if the call hangs, or if Ctrl-C
        is pressed again after the call was reported.
        """
        changing = signals.changing()
        patience = max(self._hangs_s, call.bound_s) if changing else min(GRACE_S, self._hangs_s)
        waited = call.seconds >= patience and monotonic() - at >= GRACE_S
        if not waited and not (insisted and call.seconds >= self._hangs_s):
            return
        self._report(f"interrupted: {call.sentence}")
        if changing:
            self._report(
                "the journal has recorded the change: when the driver answers, run the same command again to finish "
                "it, or to roll it back"
            )
        self._leave(128 + number)
