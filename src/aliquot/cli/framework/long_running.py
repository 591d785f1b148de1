"""Settings of a process that runs until it is stopped."""

from __future__ import annotations

import gc


def tune_gc() -> None:
    """Turn garbage collection on, which short commands do without: the memory of a long-running process would grow.
    Objects made until now, all of them modules, are not scanned again.
    """
    gc.enable()
    gc.freeze()
