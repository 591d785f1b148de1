"""Signals that ask a command to end: SIGINT (Ctrl-C), SIGTERM (systemd, ``timeout``, a scheduler), SIGHUP (a dropped
connection).

A command handles them between two actions, rolls back, and ends with the code 128 + number. A server shuts down cleanly
instead. A signal that was ignored when the command started (``nohup``, a background job of a script) stays ignored.
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
    """Return whether a section is running that a signal must not cut short (``stoppable``, ``uninterrupted``)."""
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
    """Raise Stopped at the first signal in this context. Later signals are ignored because the command is already
    rolling back. Only the main thread handles signals.
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
    """Raise Stopped at the first signal, for code that changes GPUs and rolls back before the command ends."""
    with interruptible(), _change():
        yield


@contextmanager
def stop_on_signal(stop: Callable[[], None], loop: asyncio.AbstractEventLoop | None = None) -> Iterator[None]:
    """Call ``stop`` at each signal, for a server that then shuts down cleanly with exit code 0.

    SIGHUP counts as SIGTERM: nothing here reloads a file at SIGHUP, and a terminal that goes away must not leave GPU
    clients paused. Later signals call ``stop`` again and cut nothing short. With ``loop``, the event loop calls
    ``stop``. Without it a new thread does, because the main thread, which handles signals, may hold the lock that
    ``stop`` takes.
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
    """Call ``action`` at each signal whose current handler ``replaces`` accepts; yields the previous handlers."""
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
    """Block signals to this thread in this context; yields the previous mask, for ``in_child``. Python swallows an
    exception that a handler raises during a fork, and the request to end would be lost.
    """
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield previous
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)


def in_child(mask: set[int], *others: signal.Signals) -> None:
    """Reset the handlers of a forked child, so that SIGTERM, SIGHUP and ``others`` have their default effect. The child
    ignores SIGINT, because a terminal also sends it to the parent, which ends the child.
    """
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGHUP, *others):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


@contextmanager
def uninterrupted(on_signal: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Finish the code in this context before a signal takes effect, for example between unbinding a function and
    binding it again. A signal calls ``on_signal`` at once and takes effect once, at the end of the context.
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
