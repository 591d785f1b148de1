"""The agent's memory: what a change needs for a moment goes back to the machine afterwards."""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _ARENA_MAX = -1, -8
"""Numbers of glibc's mallopt(3)."""


def limit_heap() -> None:
    """Before any thread starts: one heap for all of them, given back from 128 KiB on. glibc otherwise makes a heap for
    each thread and raises the limit by itself, which is meant for programs that are busy all day. Where there is no
    glibc, nothing happens.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_ARENA_MAX, 1)
        mallopt(_TRIM_THRESHOLD, 128 * 1024)
