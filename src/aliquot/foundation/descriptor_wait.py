"""Waiting until a descriptor is readable."""

from __future__ import annotations

import select


def wait_readable(descriptor: int, seconds: float) -> bool:
    """Return whether a descriptor is readable, or at its end, within ``seconds``. Unlike ``select.select``, this
    supports descriptors above 1,023, which a process with many connections has.
    """
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    return bool(waiting.poll(max(0.0, seconds) * 1000))
