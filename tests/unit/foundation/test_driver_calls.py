"""Driver calls that have not returned, and their durations."""

from __future__ import annotations

import threading
import time

import pytest

from aliquot.errors import DriverHangsError, UsageError
from aliquot.foundation import driver_calls
from aliquot.foundation.driver_calls import DriverCall


def test_a_call_counts_from_its_start_to_its_return() -> None:
    assert driver_calls.oldest() is None
    assert driver_calls.oldest_s() == 0
    with DriverCall("first", "0000:07:00.0") as first:
        with DriverCall("second"):
            assert driver_calls.oldest() is first
            assert driver_calls.oldest_s() > 0
        assert driver_calls.oldest() is first
    assert driver_calls.oldest() is None


def test_a_call_that_fails_has_returned() -> None:
    with pytest.raises(ValueError, match="no"), DriverCall("call"):
        raise ValueError("no")
    assert driver_calls.oldest() is None


def test_calls_of_all_threads_count() -> None:
    go, done = threading.Event(), threading.Event()

    def call() -> None:
        with DriverCall("theirs", "0000:07:00.0"):
            done.set()
            go.wait(10)

    thread = threading.Thread(target=call)
    thread.start()
    assert done.wait(10)
    with DriverCall("mine"):
        oldest = driver_calls.oldest()
        assert oldest is not None
        assert oldest.sentence == "the driver has not returned from theirs (GPU 0000:07:00.0) for 0 s"
    go.set()
    thread.join()


def test_a_call_costs_next_to_nothing() -> None:
    began = time.process_time()
    for _ in range(1000):
        with DriverCall("call"):
            pass
    assert time.process_time() - began < 0.1


def test_the_bound_is_a_number_of_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(driver_calls.VARIABLE, raising=False)
    assert driver_calls.hangs_s() == driver_calls.HANGS_S == 30
    monkeypatch.setenv(driver_calls.VARIABLE, "2.5")
    assert driver_calls.hangs_s() == 2.5
    for wrong in ("soon", "0", "-1", "nan", "inf"):
        monkeypatch.setenv(driver_calls.VARIABLE, wrong)
        with pytest.raises(UsageError, match=driver_calls.VARIABLE):
            driver_calls.hangs_s()


def test_what_may_take_longer_has_a_bound_of_its_own() -> None:
    with DriverCall("write numvfs", bound_s=100), DriverCall("reading", "0000:07:00.0"):
        with pytest.raises(DriverHangsError, match=r"from reading \(GPU 0000:07:00.0\) for more than 0 s"):
            driver_calls.check(0)
        driver_calls.check(10)
    with DriverCall("write numvfs", bound_s=100):
        driver_calls.check(0)


def test_a_call_hangs_in_its_own_thread_and_in_no_other() -> None:
    with DriverCall("mine"):
        time.sleep(0.02)
        assert driver_calls.find_hang(0.01, threading.get_ident()) is not None
        assert driver_calls.find_hang(0.01, threading.get_ident() + 1) is None
        assert driver_calls.find_hang(0.01) is not None, "0 is every thread"
        assert driver_calls.find_hang(5.0) is None


def test_the_calls_that_are_running_may_take_as_long_as_the_longest_bound() -> None:
    assert driver_calls.bound_s(30) == 30
    with DriverCall("write numvfs", bound_s=120), DriverCall("reading"):
        assert driver_calls.bound_s(30) == 120
        assert driver_calls.bound_s(200) == 200


def test_the_environment_says_when_a_call_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    with DriverCall("reading"):
        time.sleep(0.02)
        assert driver_calls.current_hang() is None
        monkeypatch.setenv(driver_calls.VARIABLE, "0.01")
        assert driver_calls.current_hang() is not None
