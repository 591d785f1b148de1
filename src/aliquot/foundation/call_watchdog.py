"""A thread that watches a command's driver calls: it reports one that does not return, and lets the command be ended.

Python runs the handlers of signals in the main thread, between two of its instructions: while that thread waits inside
a library or the kernel, Ctrl-C has no effect. The interpreter's own handler in C still writes the signal's number to
a file descriptor (``signal.set_wakeup_fd``), and this thread reads it.

A thread that sleeps uninterruptibly inside the kernel outlives its process: nothing but the kernel ends it.
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
"""How long after a signal the main thread may take to end by itself."""
_POLL_S = 0.25
_END = 0


class CallWatchdog:
    """Watches from ``__enter__`` to ``__exit__``. ``report`` prints a line; ``leave`` ends the process with an exit
    code. A call that runs for ``hangs_s`` is reported, and again after twice that time. In a thread that is not the
    main one it reports, and leaves signals to the main thread.
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
            # A command that no signal has reached has nothing to look at before its calls can be late.
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
            "; the command is ended when it returns, or now by Ctrl-C"
            if self._stop_signal
            else "; Ctrl-C ends the command"
        )

    def _note_signals(self, numbers: bytes) -> bool:
        """Note the first signal that asks for the end. Returns whether Ctrl-C came after it: a session that ends may
        send SIGTERM and SIGHUP, and a person presses Ctrl-C again.
        """
        insisted = False
        for number in numbers:
            if number in signals.ENDING and self._stop_signal is None:
                self._stop_signal = number, monotonic()
                if signals.changing():
                    self._notice_s = self._hangs_s  # a call that was reported is reported again, with what ends it now
            elif number == signal.SIGINT:
                insisted = True
        return insisted

    def _end(self, call: driver_calls.DriverCall, number: int, at: float, *, insisted: bool) -> None:
        """End the process if the call keeps it from ending by itself. A command that only reads loses nothing by it;
        a change goes back, and for that its call must return: it is given up only once it hangs, or at Ctrl-C again
        once it was reported.
        """
        changing = signals.changing()
        patience = max(self._hangs_s, call.bound_s) if changing else min(GRACE_S, self._hangs_s)
        waited = call.seconds >= patience and monotonic() - at >= GRACE_S
        if not waited and not (insisted and call.seconds >= self._hangs_s):
            return
        self._report(f"interrupted: {call.sentence}")
        if changing:
            self._report(
                "the journal has what was begun: once the driver answers, the same command again finishes it, "
                "or goes back"
            )
        self._leave(128 + number)
