"""Session gate: no call runs while the session is closed, and the session reopens when the last suspension ends."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from aliquot.hardware.nvml.session_gate import SessionGate


class Session:
    def __init__(self) -> None:
        self.open = True
        self.inside = 0
        self.faults: list[str] = []
        self.gate = SessionGate(self.close, self.reopen)

    def close(self) -> None:
        if self.inside or not self.open:
            self.faults.append("closed while in use, or twice")
        self.open = False

    def reopen(self) -> None:
        if self.open:
            self.faults.append("opened twice")
        self.open = True


def test_users_and_suspensions_never_meet() -> None:
    session, lock = Session(), threading.Lock()

    def use() -> None:
        for _ in range(100):
            with session.gate.use():
                with lock:
                    session.inside += 1
                time.sleep(0.0002)
                if not session.open:
                    session.faults.append("used while closed")
                with lock:
                    session.inside -= 1

    def suspend() -> None:
        for _ in range(50):
            with session.gate.suspended():
                if session.open or session.inside:
                    session.faults.append("suspended while open or in use")

    with ThreadPoolExecutor(6) as pool:
        for job in [pool.submit(f) for f in (use, suspend, use, suspend, use, suspend)]:
            job.result(timeout=60)
    assert session.faults == []
    assert session.open


def test_a_suspension_waits_for_who_is_inside() -> None:
    session = Session()
    entered, leave = threading.Event(), threading.Event()

    def use() -> None:
        with session.gate.use():
            session.inside += 1
            entered.set()
            leave.wait(10)
            session.inside -= 1

    def suspend() -> bool:
        with session.gate.suspended():
            return session.open

    with ThreadPoolExecutor(2) as pool:
        user = pool.submit(use)
        assert entered.wait(10)
        waiting = pool.submit(suspend)
        with pytest.raises(TimeoutError):
            waiting.result(timeout=0.1)
        leave.set()
        assert waiting.result(timeout=10) is False
        user.result(timeout=10)
    assert session.faults == []


def test_a_session_that_cannot_reopen_blocks_no_other() -> None:
    def fail() -> None:
        raise RuntimeError("no driver any more")

    gate = SessionGate(lambda: None, fail)
    with pytest.raises(RuntimeError), gate.suspended():
        pass
    with gate.use():
        pass
