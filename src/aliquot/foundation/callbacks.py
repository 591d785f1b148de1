"""Types of functions that callers pass in."""

from __future__ import annotations

from collections.abc import Callable

Report = Callable[[str], None]
"""A function that takes one line for people: progress, a warning or output."""
ReadFile = Callable[[str], str]
"""A function that returns the text of a file. Raises OSError."""
