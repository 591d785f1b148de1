"""Color: on terminals, unless NO_COLOR is set, or as ``--color`` says."""

from __future__ import annotations

import os
import sys

RED, GREEN, YELLOW, BOLD, DIM = "31", "32", "33", "1", "2"
AUTO, ALWAYS, NEVER = MODES = ("auto", "always", "never")

mode = AUTO


def wanted() -> bool:
    """Report whether results are printed in color."""
    if mode != AUTO:
        return mode == ALWAYS
    return sys.stdout is not None and sys.stdout.isatty() and welcome()  # None if the caller closed it


def welcome() -> bool:
    """Report whether a terminal, if there is one, may show color."""
    if mode != AUTO:
        return mode == ALWAYS
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"


def paint(text: str, code: str, on: bool) -> str:
    """Return the text in a color if ``on``."""
    return f"\x1b[{code}m{text}\x1b[0m" if on and text else text
