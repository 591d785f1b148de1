"""Marks every line of the measured files that a process executes. Copied beside the sources, it is imported by each
interpreter that has them on its path: tests, fork servers and what they fork, commands.

``lines/index.json`` says at which byte of the shared file ``lines/map`` each measured file begins, a byte a line.
Marking a line makes no system call, because tests count those.
"""

from __future__ import annotations

import json
import mmap
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

_FOLDER = Path(__file__).resolve().parent.parent / "lines"


def _measure() -> None:
    index: dict[str, int] = json.loads((_FOLDER / "index.json").read_bytes())
    with (_FOLDER / "map").open("r+b") as file:
        marks = mmap.mmap(file.fileno(), 0)

    def executed(frame: FrameType, event: str, arg: Any) -> Any:
        marks[index[frame.f_code.co_filename] + frame.f_lineno] = 1
        return executed

    def called(frame: FrameType, event: str, arg: Any) -> Any:
        return executed if frame.f_code.co_filename in index else None

    threading.settrace(called)
    sys.settrace(called)


if (_FOLDER / "index.json").exists():
    _measure()
