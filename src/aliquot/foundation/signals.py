"""Signals that ask a command to end: SIGINT (Ctrl-C), SIGTERM (systemd, ``timeout``, a scheduler), SIGHUP (a dropped
connection). One design for all of them: they are heard between two acts, lead back, and end the command with the code
128 + number. What serves ends in good order instead. A signal that was ignored when the command started (``nohup``, a
background job of a script) stays so.
"""

from __future__ import annotations

import _thread
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio

Handler = Callable[[int, FrameType | None], None]
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_changes = 0


def changing() -> bool:
    """Return whether something is under way that a signal must not cut short (``stoppable``, ``uninterrupted``)."""
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
def interruptible() -> Iterator[None]:
    """Raise Stopped at the first signal. Later ones change nothing: the command is on its way back already. Only the
    main thread hears of signals.
    """
    heard: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        heard.append(number)
        if len(heard) == 1:
            raise Stopped(number)

    with _handled(stop, lambda handler: handler in (signal.SIG_DFL, signal.default_int_handler)):
        yield


@contextmanager
def stoppable() -> Iterator[None]:
    """Do the same for what changes GPUs: it goes back before the command ends."""
    with interruptible(), _change():
        yield


@contextmanager
def stop_on_signal(stop: Callable[[], None], loop: asyncio.AbstractEventLoop | None = None) -> Iterator[None]:
    """Call ``stop`` at each signal, for what serves until it is asked to end, and then ends in good order with exit
    code 0. SIGHUP counts as SIGTERM: nothing here reloads a file at it, and a terminal that goes away must not leave
    GPU clients paused. Later signals call it again, and cut nothing short. With ``loop``, ``stop`` is called by it;
    else in a thread: the main thread, which handles signals, may be holding the very lock that ``stop`` takes.
    """
    if loop is None:

        def hear(number: int, frame: FrameType | None) -> None:
            _thread.start_new_thread(stop, ())

        with _handled(hear, lambda handler: handler is not signal.SIG_IGN):
            yield
        return
    heard = [number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN]
    for number in heard:
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in heard:
            loop.remove_signal_handler(number)


@contextmanager
def _handled(action: Handler, replaces: Callable[[Any], bool]) -> Iterator[dict[signal.Signals, Any]]:
    """Have ``action`` called at each signal whose handler it ``replaces``; yields the former handlers."""
    if threading.current_thread() is not threading.main_thread():
        yield {}
        return
    previous = {number: signal.getsignal(number) for number in ENDING}
    try:
        for number, handler in previous.items():
            if replaces(handler):
                signal.signal(number, action)
        yield previous
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)


@contextmanager
def blocked() -> Iterator[set[int]]:
    """Let no signal through to this thread before the end of this; yields the former mask, for ``in_child``. Python
    swallows what a handler raises while it forks: the order to end would be lost.
    """
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield previous
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)


def in_child(mask: set[int], *others: signal.Signals) -> None:
    """Have a forked child end at SIGTERM and SIGHUP as any program does, with the default for ``others``. It ignores
    SIGINT, which a terminal sends to the parent, too: that one ends it.
    """
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGHUP, *others):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


@contextmanager
def uninterrupted(on_signal: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Do what is inside whole: between unbinding a function and binding it again, nothing may stop us. A signal calls
    ``on_signal`` at once and takes effect at the end of this, however often it came.
    """
    heard: list[tuple[int, FrameType | None]] = []

    def postpone(number: int, frame: FrameType | None) -> None:
        heard.append((number, frame))
        on_signal()

    previous: dict[signal.Signals, Any] = {}
    try:
        with _handled(postpone, lambda handler: handler is not signal.SIG_IGN) as previous, _change():
            yield
    finally:
        if heard:
            first, frame = heard[0]
            action = previous[signal.Signals(first)]
            if callable(action):
                action(first, frame)
            else:
                os.kill(os.getpid(), first)
