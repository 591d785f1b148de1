"""Waiting for a descriptor to have something to read."""

from __future__ import annotations

import select


def wait_readable(descriptor: int, seconds: float) -> bool:
    """Return whether a descriptor can be read, or has ended, within some seconds. Unlike ``select.select`` it takes
    numbers of 1,024 and more, which a process with many connections has.
    """
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    return bool(waiting.poll(max(0.0, seconds) * 1000))
