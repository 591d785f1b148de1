"""Building the tripwire: ``trip.c`` says what it does."""

from __future__ import annotations

import subprocess
from pathlib import Path

from support import forkserver

FLAGS = ("-std=gnu11", "-O1", "-Wall", "-Werror", "-fPIC", "-shared", "-pthread")


def build(folder: Path, gcc: str) -> str:
    """The path of the library, for LD_PRELOAD, and a fork server that has loaded it."""
    target = folder / "trip.so"
    source = Path(__file__).with_name("trip.c")
    subprocess.run([gcc, *FLAGS, "-o", str(target), str(source), "-ldl"], check=True)
    forkserver.prepare(str(target))
    return str(target)
