"""Build of the tripwire, which ``trip.c`` documents."""

from __future__ import annotations

import subprocess
from pathlib import Path

from support import forkserver

FLAGS = ("-std=gnu11", "-O1", "-Wall", "-Werror", "-fPIC", "-shared", "-pthread")


def build(folder: Path, gcc: str) -> str:
    """Build the library for LD_PRELOAD, and start a fork server that has loaded it. Return the library's path."""
    target = folder / "trip.so"
    source = Path(__file__).with_name("trip.c")
    subprocess.run([gcc, *FLAGS, "-o", str(target), str(source), "-ldl"], check=True)
    forkserver.prepare(str(target))
    return str(target)
