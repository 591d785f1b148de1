"""The checks that run in the guest, in the order of the source. Each is a function that raises if it fails."""

from __future__ import annotations

import contextlib
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, TypeVar

E = TypeVar("E", bound=Exception)
Check = Callable[[], object]
ALL: dict[str, tuple[Check, int]] = {}
"""Name (file::function) to the check, and the seconds that it may take."""


def check(patience: int = 60) -> Callable[[Check], Check]:
    """Register a check. Its result is shown beside its name."""

    def register(function: Check) -> Check:
        ALL[f"{function.__module__.rpartition('.')[2]}::{function.__name__}"] = (function, patience)
        return function

    return register


def run(name: str) -> dict[str, Any]:
    """Return the outcome of a check."""
    function, patience = ALL[name]
    began = time.monotonic()
    why = ""
    answer: object = None
    signal.signal(signal.SIGALRM, _late)
    signal.alarm(patience)
    try:
        answer = function()
    except Exception:  # noqa: BLE001 - every exception belongs in the report
        why = traceback.format_exc(limit=-6)[-3000:]
    finally:
        signal.alarm(0)
    seconds = round(time.monotonic() - began, 2)
    return {"check": name, "ok": not why, "why": why, "said": "" if answer is None else str(answer), "seconds": seconds}


def _late(*_: object) -> NoReturn:
    raise TimeoutError("the check took too long")


@contextlib.contextmanager
def refused(number: int) -> Iterator[None]:
    """Require that the kernel refuses the operations inside, with this errno."""
    try:
        yield
    except OSError as error:
        if error.errno != number:
            raise
    else:
        raise AssertionError(f"errno {number} was expected, and it went through")


def fails(kind: type[E], what: Callable[[], object]) -> E:
    """Return the error of this kind that ``what`` must raise."""
    try:
        done = what()
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was expected, and it went through: {done}")


def until(what: Callable[[], object], seconds: float = 10) -> None:
    """Wait until a condition is true."""
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, f"still not so after {seconds} s: {what}"
        time.sleep(0.1)
