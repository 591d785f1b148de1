"""stdout for results, stderr for everything else; a full disk or a reader that went away is no traceback."""

from __future__ import annotations

import os
import sys

from aliquot.errors import StorageError


def result(text: str, end: str = "\n") -> None:
    """Prints on stdout. Raises StorageError if its disk is full, BrokenPipeError if nobody reads any more."""
    try:
        print(text, end=end, flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        point_away()
        raise StorageError(f"cannot write the result: {error.strerror}") from error


def note(text: str) -> None:
    """A remark beside the result. One write, so that lanes that report at once do not mix their lines. Nobody may be
    listening (stderr is closed): the exit code still tells.
    """
    try:
        sys.stderr.write(f"{text}\n")
    except (AttributeError, OSError, ValueError):
        return


def watched() -> bool:
    """Whether somebody reads stderr on a terminal."""
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):
        return False


def point_away() -> None:
    """stdout cannot be written: point it away, so that Python's own flush at exit stays quiet."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
