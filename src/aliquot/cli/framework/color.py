"""Colour, on a terminal only, and never where NO_COLOR is set."""

from __future__ import annotations

import os
import sys

RED, GREEN, YELLOW, BOLD, DIM = "31", "32", "33", "1", "2"


def wanted() -> bool:
    """Whether stdout is a terminal that wants colour."""
    return sys.stdout is not None and sys.stdout.isatty() and welcome()  # None where the caller closed it


def welcome() -> bool:
    """Return whether a terminal, if there is one, may show colour."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"


def paint(text: str, code: str, on: bool) -> str:
    """The text in a colour, or as it is."""
    return f"\x1b[{code}m{text}\x1b[0m" if on and text else text
