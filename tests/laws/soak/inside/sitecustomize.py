"""Inside a process under test: on SIGUSR2, give free memory back and write how much is left.

A process that is started with this folder in PYTHONPATH imports it (see ``growth``). Objects are collected and free
pages go back to the kernel, so that what is measured afterwards is held by something.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal

NAMES = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")


class Allocated(ctypes.Structure):
    """What mallinfo2(3) returns, in bytes."""

    _fields_ = [(name, ctypes.c_size_t) for name in NAMES]


def answer(*_: object) -> None:
    """Write the bytes of the heap that are given out. Python has no other heap (PYTHONMALLOC=malloc)."""
    gc.collect()
    library.malloc_trim(0)
    found = library.mallinfo2()
    path = f"{os.environ['ALIQUOT_SOAK']}/{os.getpid()}"
    with open(f"{path}.new", "w") as file:
        file.write(str(found.uordblks))
    os.rename(f"{path}.new", path)


if "ALIQUOT_SOAK" in os.environ:
    library = ctypes.CDLL(None)
    library.mallinfo2.restype = Allocated
    signal.signal(signal.SIGUSR2, answer)
