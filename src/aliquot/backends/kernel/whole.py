"""Acts that are done whole: between unbinding a function and binding it again nothing may stop us."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def whole() -> Iterator[None]:
    """Ctrl-C waits for the end of this. Threads other than the main one get no signals anyway."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pressed: list[FrameType | None] = []
    former = signal.signal(signal.SIGINT, lambda number, frame: pressed.append(frame))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, former if former is not None else signal.SIG_DFL)
        if pressed and callable(former):
            former(signal.SIGINT, pressed[0])
