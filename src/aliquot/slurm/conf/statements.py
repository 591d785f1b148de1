"""Statements of Slurm's configuration files, with their locations, so that they can be shown and replaced."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import msgspec


class ConfLocation(msgspec.Struct, frozen=True, order=True):
    """A location in a file: ``/etc/slurm/gres.conf:12``. Lines count from 1; line 0 is the whole file."""

    file: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


class ConfPair(msgspec.Struct, frozen=True):
    """A ``Key=value`` pair."""

    key: str
    value: str
    """Without quotes and escapes."""
    location: ConfLocation
    start: int
    """The offset of the value, including quotes, in the text of the file. Replacing ``start`` to ``end`` changes
    nothing else.
    """
    end: int
    operator: str = ""
    """The ``+`` of ``Key+=value``."""

    def called(self, *keys: str) -> bool:
        """Report whether the key is one of these. Slurm's keys are not case-sensitive."""
        return self.key.lower() in _lowered(keys)


@cache
def _lowered(keys: tuple[str, ...]) -> frozenset[str]:
    """Return keys in lower case. Cached, because the same constants are compared with each pair of each file."""
    return frozenset(k.lower() for k in keys)


class ConfStatement(msgspec.Struct, frozen=True):
    """A logical line: the pair that begins it, and the pairs that follow."""

    pairs: tuple[ConfPair, ...]
    location: ConfLocation
    last: int
    """The number of its last line in the file."""
    start: int
    """The offset in the text of the file; ``start`` to ``end`` excludes comment and line end."""
    end: int

    @property
    def head(self) -> ConfPair:
        return self.pairs[0]

    def pair(self, *keys: str) -> ConfPair | None:
        """Return the pair in effect for these keys, which is the last one, or None."""
        return next((p for p in reversed(self.pairs) if p.called(*keys)), None)

    def get(self, *keys: str, default: str = "") -> str:
        """Return the value of the pair in effect, or the default."""
        found = self.pair(*keys)
        return found.value if found else default


class ConfDiagnostic(msgspec.Struct, frozen=True):
    """A text that Slurm cannot read."""

    location: ConfLocation
    sentence: str

    def __str__(self) -> str:
        return f"{self.location}: {self.sentence}"


class ConfSource(msgspec.Struct, frozen=True):
    """The text of a file: bytes that are not UTF-8 are surrogate escapes, and line ends are unchanged."""

    path: str
    text: str


class Conf(msgspec.Struct, frozen=True, dict=True):
    """A configuration: its file and every file that it includes, in the order in which Slurm reads them."""

    path: str
    statements: tuple[ConfStatement, ...] = ()
    sources: tuple[ConfSource, ...] = ()
    diagnostics: tuple[ConfDiagnostic, ...] = ()

    def headed(self, *keys: str) -> Iterator[ConfStatement]:
        """Return the statements that begin with one of these keys, in order."""
        return (s for s in self.statements if s.head.called(*keys))

    def last(self, *keys: str) -> ConfPair | None:
        """Return the first pair of the statement in effect for these keys, which is the last one, or None."""
        found = [s.head for s in self.headed(*keys)]
        return found[-1] if found else None

    def get(self, *keys: str, default: str = "") -> str:
        """Return the value in effect for these keys, or the default."""
        found = self.last(*keys)
        return found.value if found else default

    def source(self, path: str) -> ConfSource:
        """Return one of the files. Raises KeyError for a file that is not part of the configuration."""
        for each in self.sources:
            if each.path == path:
                return each
        raise KeyError(path)


def replaced(text: str, changes: dict[ConfPair, str]) -> str:
    """Return the text of a file with new values for some of its pairs; all other bytes stay the same."""
    for pair in sorted(changes, key=lambda p: p.start, reverse=True):
        text = text[: pair.start] + changes[pair] + text[pair.end :]
    return text
