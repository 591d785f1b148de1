"""Whether an agent is alive, for kubelet's probe."""

from __future__ import annotations

import time

from aliquot.foundation import driver_calls
from aliquot.foundation.http_server import Answer, text_answer

STUCK_S = 900.0
"""How long one driver call may run before the agent counts as dead. It hangs, and is reported, much earlier
(``driver_calls.HANGS_S``): until then the agent is only not ready. A new pod would wait for the same driver, and while
the kernel keeps the thread of the old one, kubelet could not even end it.
"""
SILENT_S = 900.0
"""How long the loop may be silent beyond the bounds of the step that is on."""


def alive(beat: float | None, *, busy: bool) -> Answer:
    """Return the page. ``beat`` is when the loop last moved, None before it does; ``busy`` whether it waits for the
    driver.
    """
    stuck = driver_calls.oldest_s()
    if stuck > STUCK_S:
        return text_answer(503, f"a driver call hangs for {stuck:.0f} s")
    if beat is not None and not busy and time.monotonic() - beat > SILENT_S:
        return text_answer(503, "the loop is silent")
    return text_answer(200, "ok")
