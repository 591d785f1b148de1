"""Tuning of malloc: memory that a change needs for a short time is returned to the host."""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _ARENA_MAX = -1, -8
"""Numbers of glibc's mallopt(3)."""


def limit_heap() -> None:
    """Use one heap for all threads, trimmed from 128 KiB on; call this before any thread starts.

    By default, glibc has a heap for each thread and raises the limit, which suits only programs that are always busy.
    Does nothing without glibc.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_ARENA_MAX, 1)
        mallopt(_TRIM_THRESHOLD, 128 * 1024)
