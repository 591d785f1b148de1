"""Waiting for what other processes bring about, and for their end."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_S = 60.0


def until(true: Callable[[], object], what: str = "what another process brings about") -> None:
    """Wait until something holds. Raises AssertionError after a minute."""
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline, f"not within {PATIENCE_S:.0f} s: {what}"
        time.sleep(0.003)


def ended(pid: int) -> bool:
    """Whether a process has ended. A zombie has, and waits for its parent. One that was killed has not yet."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] in b"ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True
