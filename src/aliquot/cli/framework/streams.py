"""stdout for results, stderr for everything else. A full disk or a closed pipe causes no traceback.

Output contains names that others chose: of processes, jobs, containers. Control characters in them could hide lines on
a terminal, or fake them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from aliquot.errors import StorageError
from aliquot.foundation.callbacks import Report

_ORDERS = {n: "?" for n in (*range(32), *range(127, 160)) if chr(n) not in "\n\t\x1b"}


def plain(text: str) -> str:
    """Remove terminal control sequences from a text, except Aliquot's own colors."""
    text = text.translate(_ORDERS)
    if "\x1b" not in text:
        return text
    import re

    return re.sub(r"\x1b(?!\[[0-9]{0,2}m)", "?", text)


def result(text: str, end: str = "\n") -> None:
    """Print to stdout. Raises StorageError if its disk is full, BrokenPipeError if the reader is gone."""
    try:
        # A file, or another program, gets it as it is.
        print(plain(text) if sys.stdout is not None and sys.stdout.isatty() else text, end=end, flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        redirect_to_devnull()
        raise StorageError(f"cannot write the result: {error.strerror}") from error


quiet = False
"""Drop notes, as ``-q`` requests."""


def note(text: str) -> None:
    """Print a remark on stderr, unless ``quiet``."""
    if not quiet:
        error(text)


def error(text: str) -> None:
    """Print an error on stderr in one write, so that lines of several threads do not mix.

    Do nothing if stderr is closed: the exit code still reports the failure.
    """
    if _redirects:
        _redirects[-1](text)
        return
    try:
        sys.stderr.write(f"{plain(text)}\n")
    except (AttributeError, OSError, ValueError):
        return


_redirects: list[Report] = []


@contextmanager
def redirected(write: Report) -> Iterator[None]:
    """Send notes and errors to ``write`` while the block runs: they stay above what is drawn on the terminal."""
    _redirects.append(write)
    try:
        yield
    finally:
        _redirects.remove(write)


def watched() -> bool:
    """Report whether stderr is a terminal."""
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):
        return False


def redirect_to_devnull() -> None:
    """Redirect stdout, which cannot be written, to /dev/null, so that Python's flush at exit stays quiet."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
