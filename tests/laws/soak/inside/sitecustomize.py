"""Code inside a process under test: on SIGUSR2, release free memory and write the size of the rest.

A process imports it if this folder is in its PYTHONPATH (see ``growth``). Objects are collected and free pages return
to the kernel, so that a reference holds all memory that is measured afterwards.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal

NAMES = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")


class Allocated(ctypes.Structure):
    """Result of mallinfo2(3), in bytes."""

    _fields_ = [(name, ctypes.c_size_t) for name in NAMES]


def answer(*_: object) -> None:
    """Write the number of allocated heap bytes. Python has no other heap (PYTHONMALLOC=malloc)."""
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
