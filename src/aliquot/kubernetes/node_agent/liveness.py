"""Liveness of an agent, for kubelet's probe."""

from __future__ import annotations

import time

from aliquot.foundation import driver_calls
from aliquot.foundation.http_server import Answer, text_answer

STUCK_S = 900.0
"""Seconds that a driver call may run before the agent counts as dead.

A hang is reported much earlier (``driver_calls.HANGS_S``), and makes the agent not ready. A new pod would wait for the
same driver. While the kernel blocks the thread of the old one, kubelet cannot even end its pod.
"""
SILENT_S = 900.0
"""Seconds that the loop may be silent beyond the timeouts of the current step."""


def alive(beat: float | None, *, busy: bool) -> Answer:
    """Return the page. ``beat`` is when the loop last ran (None before), ``busy`` whether it waits for the driver."""
    stuck = driver_calls.oldest_s()
    if stuck > STUCK_S:
        return text_answer(503, f"a driver call has been hanging for {stuck:.0f} s")
    if beat is not None and not busy and time.monotonic() - beat > SILENT_S:
        return text_answer(503, "the agent's loop does not run")
    return text_answer(200, "ok")
