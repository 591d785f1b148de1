"""Signals that ask a command to end: SIGINT (Ctrl-C), SIGTERM (systemd, ``timeout``, a scheduler), SIGHUP (a dropped
connection). One design for all of them: they are heard between two acts, lead back, and end the command with the code
128 + number. A signal that was ignored when the command started (``nohup``, a background job of a script) stays so.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_changes = 0


def changing() -> bool:
    """Return whether something is under way that a signal must not cut short (``stoppable``, ``whole``)."""
    return _changes > 0


@contextmanager
def _change() -> Iterator[None]:
    global _changes
    _changes += 1
    try:
        yield
    finally:
        _changes -= 1


class Stopped(KeyboardInterrupt):
    """A signal asked this command to end. ``number`` is the signal's."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


@contextmanager
def stoppable() -> Iterator[None]:
    """Raise Stopped at the first signal. Later ones change nothing: the command is on its way back already. Only the
    main thread hears of signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        heard.append(number)
        if len(heard) == 1:
            raise Stopped(number)

    former = {n: signal.getsignal(n) for n in ENDING}
    try:
        for number, handler in former.items():
            if handler in (signal.SIG_DFL, signal.default_int_handler):
                signal.signal(number, stop)
        with _change():
            yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)


@contextmanager
def whole(asked: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Do what is inside whole: between unbinding a function and binding it again, nothing may stop us. A signal calls
    ``asked`` at once and takes effect at the end of this, however often it came.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard: list[tuple[int, FrameType | None]] = []

    def later(number: int, frame: FrameType | None) -> None:
        heard.append((number, frame))
        asked()

    former = {n: signal.getsignal(n) for n in ENDING}
    try:
        for number, handler in former.items():
            if handler is not signal.SIG_IGN:
                signal.signal(number, later)
        with _change():
            yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        if heard:
            first, frame = heard[0]
            action = former[signal.Signals(first)]
            if callable(action):
                action(first, frame)
            else:
                os.kill(os.getpid(), first)
