"""What a command changes of its process that goes on until somebody ends it."""

from __future__ import annotations

import gc


def tune_gc() -> None:
    """From now on garbage is looked for, which commands that end at once do without: a process that never does grows
    for as long as it lives. What was made until now, all of it modules, is not gone through again and again.
    """
    gc.enable()
    gc.freeze()
