"""Signals that ask a command to end: handled between two actions, once, and not if they were ignored before."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest

from aliquot.foundation.signals import ENDING, Stopped, changing, stoppable, uninterrupted

BOTH = pytest.mark.parametrize("guard", [stoppable, uninterrupted])
Guard = Callable[[], AbstractContextManager[None]]


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    previous = {number: signal.getsignal(number) for number in ENDING}
    for number in ENDING:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    yield
    for number, handler in previous.items():
        signal.signal(number, handler)


def _handlers() -> list[Any]:
    return [signal.getsignal(number) for number in ENDING]


@BOTH
def test_what_handled_them_before_does_so_afterwards(guard: Guard) -> None:
    signal.signal(signal.SIGHUP, lambda number, frame: None)
    before = _handlers()
    assert not changing()
    with guard():
        assert changing()
        assert signal.getsignal(signal.SIGTERM) != signal.SIG_DFL
    assert not changing()
    assert _handlers() == before


@BOTH
def test_an_ignored_signal_stays_ignored(guard: Guard) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with guard():
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        os.kill(os.getpid(), signal.SIGHUP)
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN


@BOTH
def test_only_the_main_thread_hears_of_them(guard: Guard) -> None:
    before, inside = _handlers(), list[Any]()

    def run() -> None:
        with guard():
            inside.extend(_handlers())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert inside == before


@pytest.mark.parametrize("number", ENDING)
def test_the_first_one_stops_and_the_next_ones_do_nothing(number: signal.Signals) -> None:
    done: list[str] = []

    def act() -> None:
        try:
            os.kill(os.getpid(), number)
            done.append("went on")
        finally:
            os.kill(os.getpid(), number)
            done.append("went back")

    with pytest.raises(Stopped) as caught, stoppable():
        act()
    assert (caught.value.number, str(caught.value), done) == (number, number.name, ["went back"])


def test_a_handler_that_is_set_already_is_not_replaced() -> None:
    heard: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
    with stoppable():
        os.kill(os.getpid(), signal.SIGTERM)
    assert heard == [signal.SIGTERM]


def test_whole_is_done_to_its_end_and_the_first_signal_takes_effect_then() -> None:
    heard: list[int] = []
    asked: list[str] = []
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, frame: heard.append(number))
    with uninterrupted(lambda: asked.append("asked")):
        os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGTERM)
        assert (heard, asked) == ([], ["asked", "asked"])
    assert heard == [signal.SIGHUP]


def test_a_signal_that_nothing_handled_ends_the_process_after_what_is_whole() -> None:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with uninterrupted():
                os.kill(os.getpid(), signal.SIGTERM)
                os.write(writing, b"whole")
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        assert pipe.read() == b"whole"
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
