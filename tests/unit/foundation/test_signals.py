"""Signals to services: SIGINT, SIGTERM and SIGHUP end them alike, and an ignored signal never does."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from aliquot.foundation import signals
from aliquot.foundation.signals import Stopped

THREADED = """
import signal, sys, threading
from aliquot.foundation.signals import stop_on_signal
for name in sys.argv[1:]:
    signal.signal(getattr(signal, name), signal.SIG_IGN)
stop = threading.Event()
with stop_on_signal(stop.set):
    print("serving", flush=True)
    stop.wait(20)
    print("ended" if stop.is_set() else "late", flush=True)
"""
ASYNC = """
import asyncio, signal, sys
from aliquot.foundation.signals import stop_on_signal
for name in sys.argv[1:]:
    signal.signal(getattr(signal, name), signal.SIG_IGN)
async def main():
    stop = asyncio.Event()
    with stop_on_signal(stop.set, asyncio.get_running_loop()):
        print("serving", flush=True)
        try:
            async with asyncio.timeout(20):
                await stop.wait()
            print("ended", flush=True)
        except TimeoutError:
            print("late", flush=True)
asyncio.run(main())
"""


def serving(code: str, *ignored: str) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", code, *ignored], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "serving\n"
    return process


@pytest.mark.parametrize("code", [THREADED, ASYNC], ids=["threads", "asyncio"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_each_asks_what_serves_to_end_in_good_order(code: str, number: signal.Signals) -> None:
    process = serving(code)
    process.send_signal(number)
    assert process.communicate(timeout=15)[0] == "ended\n"
    assert process.returncode == 0


@pytest.mark.parametrize("code", [THREADED, ASYNC], ids=["threads", "asyncio"])
def test_an_ignored_one_stays_ignored(code: str) -> None:
    process = serving(code, "SIGHUP", "SIGINT")
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    assert process.poll() is None
    process.terminate()
    assert process.communicate(timeout=15)[0] == "ended\n"


def test_the_previous_handlers_come_back() -> None:
    before = [signal.getsignal(number) for number in signals.ENDING]
    with signals.stop_on_signal(lambda: None):
        pass
    assert [signal.getsignal(number) for number in signals.ENDING] == before


def test_a_loop_hears_none_afterwards() -> None:
    async def serve() -> list[bool]:
        loop = asyncio.get_running_loop()
        with signals.stop_on_signal(lambda: None, loop):
            pass
        return [loop.remove_signal_handler(number) for number in signals.ENDING]

    assert not any(asyncio.run(serve()))


@pytest.mark.parametrize("number", signals.ENDING)
def test_what_reads_is_ended_and_nothing_counts_as_a_change(number: signal.Signals) -> None:
    changing = []

    def read() -> None:
        with signals.interruptible():
            changing.append(signals.changing())
            os.kill(os.getpid(), number)
            time.sleep(5)

    with pytest.raises(Stopped) as stopped:
        read()
    assert stopped.value.number == number
    assert changing == [False]


def test_what_is_blocked_takes_effect_afterwards() -> None:
    done = []

    def fork() -> None:
        with signals.interruptible(), signals.blocked():
            signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
            time.sleep(0.05)
            done.append(1)

    with pytest.raises(Stopped):
        fork()
    assert done == [1]


LOCKED = """
import os, signal, threading, time
from aliquot.foundation.signals import stop_on_signal
lock, ended = threading.Lock(), threading.Event()
def stop():
    with lock:
        ended.set()
with stop_on_signal(stop):
    with lock:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.1)
    print("ended" if ended.wait(10) else "late", flush=True)
"""


def test_a_signal_while_the_main_thread_holds_the_lock_that_the_end_takes() -> None:
    # ``Event.wait`` holds the lock for short times.
    done = subprocess.run([sys.executable, "-c", LOCKED], stdout=subprocess.PIPE, text=True, timeout=15)
    assert (done.returncode, done.stdout) == (0, "ended\n")


def test_a_second_signal_cuts_the_end_in_good_order_not_short() -> None:
    process = serving(THREADED.replace('print("ended"', 'time.sleep(0.5); print("ended"').replace("sys,", "sys, time,"))
    for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        process.send_signal(number)
        time.sleep(0.05)
    assert process.communicate(timeout=15)[0] == "ended\n"
    assert process.returncode == 0


def test_a_second_signal_does_not_stop_the_way_back() -> None:
    back = []

    def change() -> None:
        with signals.stoppable():
            try:
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(5)
            finally:
                for number in signals.ENDING:
                    os.kill(os.getpid(), number)
                    time.sleep(0.01)
                    back.append(number)

    with pytest.raises(Stopped) as stopped:
        change()
    assert stopped.value.number == signal.SIGTERM
    assert back == list(signals.ENDING)
