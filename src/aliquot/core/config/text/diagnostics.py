"""The errors of one text, collected with their places and raised together."""

from __future__ import annotations

from typing import Protocol

from aliquot.core.model.structured_text import StructuredText
from aliquot.errors import ConfigError

_LONGEST = 400
"""Maximum characters of a sentence, which may quote the text."""


class Marked(Protocol):
    """An object with its place in the text, counted from 1. Line 0: no line to point at."""

    @property
    def line(self) -> int: ...

    @property
    def column(self) -> int: ...


def place(source: str, at: Marked) -> str:
    """Format a place: ``gpus.yaml:7:5``, or ``--mig column 5`` for a text of one line, such as an argument.

    The only text of a form has no name: its place is ``column 5``, or "".
    """
    if at.line:
        return f"{source}:{at.line}:{at.column}"
    return " ".join(filter(None, (source, f"column {at.column}" if at.column else "")))


def located(source: str, at: Marked, sentence: str) -> StructuredText:
    """Return a sentence after its place: ``gpus.yaml:7:5: unknown key``."""
    where = place(source, at)
    return StructuredText(f"{where}: " if where else "", sentence)


class Diagnostics:
    """A collector of errors that a text has on every node, each with its place."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.next_step: str | None = None
        self._found: list[tuple[int, int, str]] = []

    def add(self, at: Marked, sentence: str) -> None:
        if len(sentence) > _LONGEST:
            sentence = f"{sentence[:_LONGEST]}..."
        diagnostic = (at.line, at.column, str(located(self.source, at, sentence)))
        if diagnostic not in self._found:
            self._found.append(diagnostic)

    def __bool__(self) -> bool:
        return bool(self._found)

    def check(self) -> None:
        """Raise ConfigError with all errors, in the order of the text, if there are any."""
        if self._found:
            lines = tuple(sentence for _, _, sentence in sorted(self._found))
            count = "1 error" if len(lines) == 1 else f"{len(lines)} errors"
            raise ConfigError(
                f"{self.source} has {count}" if self.source else count, details=lines, next_step=self.next_step
            )
