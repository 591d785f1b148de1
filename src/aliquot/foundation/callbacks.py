"""Types of functions that callers pass in."""

from __future__ import annotations

from collections.abc import Callable

Report = Callable[[str], None]
"""Takes one line for people: progress, a warning, output."""
ReadFile = Callable[[str], str]
"""Return the text of a file. Raises OSError."""
