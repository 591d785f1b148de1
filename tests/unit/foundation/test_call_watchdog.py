"""A driver call that does not return is reported, and a signal ends the process although the main thread waits."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from aliquot.foundation.call_watchdog import CallWatchdog
from aliquot.foundation.driver_calls import DriverCall
from aliquot.foundation.signals import uninterrupted
from support.processes import until

HANGS_S = 1.2  # more than the grace period of a command that only reads


class Seen:
    """A watchdog under test: its reports, and the exit codes with which it would exit."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.codes: list[int] = []

    def watchdog(self) -> CallWatchdog:
        return CallWatchdog(self.lines.append, HANGS_S, self.codes.append)


@pytest.fixture(autouse=True)
def heard() -> object:
    """Make Python's signal handlers do nothing: the main thread counts as one that waits inside a library."""
    previous = {n: signal.signal(n, lambda *_: None) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in previous.items():
        signal.signal(number, handler)


def test_a_call_that_returns_is_not_mentioned() -> None:
    seen = Seen()
    with seen.watchdog():
        for _ in range(3):
            with DriverCall("call"):
                time.sleep(HANGS_S / 2)
    assert (seen.lines, seen.codes) == ([], [])


def test_a_call_that_hangs_is_reported_and_rarely_again() -> None:
    seen = Seen()
    with seen.watchdog(), DriverCall("reading the MIG mode", "0000:07:00.0"):
        until(lambda: len(seen.lines) == 2)
    assert seen.lines[0].startswith("waiting: the driver has not returned from reading the MIG mode (GPU 0000:07:00.0)")
    assert seen.lines[0].endswith("; press Ctrl-C to end the command")
    assert seen.codes == []


def test_each_call_that_hangs_is_reported() -> None:
    seen = Seen()
    with seen.watchdog():
        with DriverCall("reading the MIG mode"):
            until(lambda: seen.lines)
        with DriverCall("reading the name"):
            time.sleep(1.5 * HANGS_S)
    assert [line.partition(" for ")[0].rpartition(" from ")[2] for line in seen.lines] == [
        "reading the MIG mode",
        "reading the name",
    ]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_command_that_waits_for_a_call(number: int) -> None:
    seen = Seen()
    with seen.watchdog(), DriverCall("reading"):
        os.kill(os.getpid(), number)
        until(lambda: seen.codes)
    assert seen.codes[0] == 128 + number
    assert any(line.startswith("interrupted: the driver has not returned from reading") for line in seen.lines)


def test_a_command_that_ends_by_itself_is_left_alone() -> None:
    seen = Seen()
    with seen.watchdog():
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1.5 * HANGS_S)
    assert seen.codes == []


def test_a_change_is_given_up_only_once_its_call_hangs() -> None:
    seen = Seen()
    with seen.watchdog(), uninterrupted(), DriverCall("destroying"):
        began = time.monotonic()
        os.kill(os.getpid(), signal.SIGTERM)
        until(lambda: seen.codes)
        assert time.monotonic() - began >= HANGS_S
    assert seen.codes[0] == 143
    assert "the journal has recorded the change" in seen.lines[-1]


def test_a_change_whose_call_may_take_long_is_left_at_once_by_a_second_ctrl_c() -> None:
    seen = Seen()
    with seen.watchdog(), uninterrupted(), DriverCall("resetting", bound_s=60):
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.1)
        until(lambda: seen.lines)
        assert seen.lines[-1].endswith("; the command ends when it returns, or now if you press Ctrl-C")
        time.sleep(HANGS_S / 2)
        assert seen.codes == [], "an earlier signal did not accept the offer"
        for number in (signal.SIGTERM, signal.SIGHUP):  # the end of a session sends both
            os.kill(os.getpid(), number)
        time.sleep(HANGS_S / 2)
        assert seen.codes == []
        os.kill(os.getpid(), signal.SIGINT)
        until(lambda: seen.codes)
    assert seen.codes[0] == 130
    assert "the journal has recorded the change" in seen.lines[-1]


def test_the_first_signal_during_a_call_that_was_reported_says_what_happens_now() -> None:
    seen = Seen()
    with seen.watchdog(), uninterrupted(), DriverCall("resetting", bound_s=60):
        until(lambda: seen.lines)
        assert seen.lines[0].endswith("; press Ctrl-C to end the command")
        began = time.monotonic()
        os.kill(os.getpid(), signal.SIGTERM)
        until(lambda: len(seen.lines) == 2)
        assert time.monotonic() - began < HANGS_S / 2
        assert seen.lines[1].endswith("; the command ends when it returns, or now if you press Ctrl-C")
        os.kill(os.getpid(), signal.SIGINT)
        until(lambda: seen.codes)
    assert seen.codes[0] == 143


def test_an_ignored_signal_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    seen = Seen()
    with seen.watchdog(), DriverCall("reading"):
        os.kill(os.getpid(), signal.SIGINT)
        until(lambda: seen.lines)
        time.sleep(1.5 * HANGS_S)
    assert seen.codes == []
    assert "Ctrl-C" not in seen.lines[0]


def test_a_thread_that_hears_no_signals_reports_all_the_same() -> None:
    seen = Seen()

    def wait() -> None:
        with seen.watchdog(), DriverCall("reading"):
            until(lambda: seen.lines)

    thread = threading.Thread(target=wait)
    thread.start()
    thread.join()
    assert "Ctrl-C" not in seen.lines[0]


def test_nothing_is_left_behind() -> None:
    before = len(os.listdir("/proc/self/fd")), threading.active_count()
    for _ in range(5):
        with Seen().watchdog():
            pass
    assert (len(os.listdir("/proc/self/fd")), threading.active_count()) == before
    assert signal.set_wakeup_fd(-1) == -1
