"""Work that is done whole: between unbinding a function and binding it again, nothing may stop us."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def whole(pressed: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Ctrl-C calls ``pressed`` and is heard of at the end of this, however often it came. Threads other than the main
    one get no signals anyway.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    frames: list[FrameType | None] = []

    def later(number: int, frame: FrameType | None) -> None:
        frames.append(frame)
        pressed()

    former = signal.signal(signal.SIGINT, later)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, former if former is not None else signal.SIG_DFL)
        if frames and callable(former):
            former(signal.SIGINT, frames[0])
