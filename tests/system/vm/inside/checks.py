"""What runs in the guest: checks in the order in which they are written, each a function that raises when it fails."""

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
"""Name (file::function) -> the check, and the seconds that it may take."""


def check(patience: int = 60) -> Callable[[Check], Check]:
    """Registers a check. What it returns is shown beside its name."""

    def register(function: Check) -> Check:
        ALL[f"{function.__module__.rpartition('.')[2]}::{function.__name__}"] = (function, patience)
        return function

    return register


def run(name: str) -> dict[str, Any]:
    """One check's outcome."""
    function, patience = ALL[name]
    began = time.monotonic()
    why = ""
    said: object = None
    signal.signal(signal.SIGALRM, _late)
    signal.alarm(patience)
    try:
        said = function()
    except Exception:  # noqa: BLE001 - whatever it is belongs into the report
        why = traceback.format_exc(limit=-6)[-3000:]
    finally:
        signal.alarm(0)
    seconds = round(time.monotonic() - began, 2)
    return {"check": name, "ok": not why, "why": why, "said": "" if said is None else str(said), "seconds": seconds}


def _late(*_: object) -> NoReturn:
    raise TimeoutError("the check took too long")


@contextlib.contextmanager
def refused(number: int) -> Iterator[None]:
    """The kernel must refuse what is done inside, with this errno."""
    try:
        yield
    except OSError as error:
        if error.errno != number:
            raise
    else:
        raise AssertionError(f"errno {number} was expected, and it went through")


def fails(kind: type[E], what: Callable[[], object]) -> E:
    """The error of this kind that ``what`` must raise."""
    try:
        done = what()
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was expected, and it went through: {done}")


def until(what: Callable[[], object], seconds: float = 10) -> None:
    """Wait until it is true."""
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, f"still not so after {seconds} s: {what}"
        time.sleep(0.1)
