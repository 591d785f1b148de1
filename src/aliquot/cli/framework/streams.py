"""stdout for results, stderr for everything else; a full disk or a reader that went away is no traceback.

What is shown has names in it that others have chosen: of processes, jobs, containers. A terminal takes some characters
for orders, and would hide a line, or show one that nobody printed.
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
    """A text without orders to a terminal, but for our own colours."""
    text = text.translate(_ORDERS)
    if "\x1b" not in text:
        return text
    import re

    return re.sub(r"\x1b(?!\[[0-9]{0,2}m)", "?", text)


def result(text: str, end: str = "\n") -> None:
    """Prints on stdout. Raises StorageError if its disk is full, BrokenPipeError if nobody reads any more."""
    try:
        # A file, or another program, gets it as it is.
        print(plain(text) if sys.stdout is not None and sys.stdout.isatty() else text, end=end, flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        redirect_to_devnull()
        raise StorageError(f"cannot write the result: {error.strerror}") from error


def note(text: str) -> None:
    """A remark beside the result. One write, so that lanes that report at once do not mix their lines. Nobody may be
    listening (stderr is closed): the exit code still tells.
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
    """Remarks go to ``write`` meanwhile: something is drawn on the terminal that must stay below them."""
    _redirects.append(write)
    try:
        yield
    finally:
        _redirects.remove(write)


def watched() -> bool:
    """Whether somebody reads stderr on a terminal."""
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):
        return False


def redirect_to_devnull() -> None:
    """stdout cannot be written: point it away, so that Python's own flush at exit stays quiet."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
