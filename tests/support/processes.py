"""Wait for the effects of other processes, and for their end."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress

PATIENCE_S = 60.0


def until(
    true: Callable[[], object],
    what: str | Callable[[], str] = "what another process brings about",
    seconds: float = PATIENCE_S,
    *,
    pause_s: float = 0.003,
) -> None:
    """Wait until something holds, polling every ``pause_s``. Raises AssertionError if it does not within ``seconds``; a
    callable ``what`` is evaluated only then.
    """
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what if isinstance(what, str) else what()}"
        time.sleep(pause_s)


def family(pid: int) -> list[int]:
    """Return a process and all that it has started and that live."""
    found = [pid]
    for each in found:
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended since
            for task in os.listdir(f"/proc/{each}/task"):
                with open(f"/proc/{each}/task/{task}/children") as file:
                    found += map(int, file.read().split())
    return found


def ended(pid: int) -> bool:
    """Report whether a process has ended. A zombie has, and waits for its parent. A killed one may still run."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] in b"ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True
