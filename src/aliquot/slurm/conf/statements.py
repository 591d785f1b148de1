"""What stands in Slurm's configuration files, with the place of each word, so that it can be shown and replaced."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import msgspec


class ConfLocation(msgspec.Struct, frozen=True, order=True):
    """Where something stands: ``/etc/slurm/gres.conf:12``. Lines count from 1; line 0 is the whole file."""

    file: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


class ConfPair(msgspec.Struct, frozen=True):
    """One ``Key=value``. ``value`` is without quotes and escapes, ``operator`` the ``+`` of ``Key+=value``.

    ``start`` and ``end`` delimit the value, quotes with it, in the characters of the file's text: replacing exactly
    those changes nothing else.
    """

    key: str
    value: str
    location: ConfLocation
    start: int
    end: int
    operator: str = ""

    def called(self, *keys: str) -> bool:
        """Whether the key is one of these. Slurm's keys have no case."""
        return self.key.lower() in _lowered(keys)


@cache
def _lowered(keys: tuple[str, ...]) -> frozenset[str]:
    """Keys are constants of ours, asked for again for each pair of each file."""
    return frozenset(k.lower() for k in keys)


class ConfStatement(msgspec.Struct, frozen=True):
    """A line as Slurm understands it, continuations joined: the pair that begins it, and those that follow it.

    ``last`` is the number of its last line in the file, ``start`` and ``end`` delimit it in the file's text, without
    comment and line end.
    """

    pairs: tuple[ConfPair, ...]
    location: ConfLocation
    last: int
    start: int
    end: int

    @property
    def head(self) -> ConfPair:
        return self.pairs[0]

    def pair(self, *keys: str) -> ConfPair | None:
        """The pair of one of these keys that counts: of a key that is there twice, the last."""
        return next((p for p in reversed(self.pairs) if p.called(*keys)), None)

    def get(self, *keys: str, default: str = "") -> str:
        """Its value."""
        found = self.pair(*keys)
        return found.value if found else default


class ConfDiagnostic(msgspec.Struct, frozen=True):
    """What Slurm cannot read, and where."""

    location: ConfLocation
    sentence: str

    def __str__(self) -> str:
        return f"{self.location}: {self.sentence}"


class ConfSource(msgspec.Struct, frozen=True):
    """A file as it was read: bytes that are not UTF-8 are kept as surrogate escapes, line ends as they are."""

    path: str
    text: str


class Conf(msgspec.Struct, frozen=True, dict=True):
    """One configuration: its file and every file that it includes, in the order in which Slurm reads them."""

    path: str
    statements: tuple[ConfStatement, ...] = ()
    sources: tuple[ConfSource, ...] = ()
    diagnostics: tuple[ConfDiagnostic, ...] = ()

    def headed(self, *keys: str) -> Iterator[ConfStatement]:
        """The statements that begin with one of these keys, in order."""
        return (s for s in self.statements if s.head.called(*keys))

    def last(self, *keys: str) -> ConfPair | None:
        """The statement of a key that counts: of several, Slurm takes the last."""
        found = [s.head for s in self.headed(*keys)]
        return found[-1] if found else None

    def get(self, *keys: str, default: str = "") -> str:
        """Its value."""
        found = self.last(*keys)
        return found.value if found else default

    def source(self, path: str) -> ConfSource:
        """A file's text. Raises KeyError for a file that is none of these."""
        for each in self.sources:
            if each.path == path:
                return each
        raise KeyError(path)


def replaced(text: str, changes: dict[ConfPair, str]) -> str:
    """The text of a file with other values for some of its pairs; all else stays byte for byte."""
    for pair in sorted(changes, key=lambda p: p.start, reverse=True):
        text = text[: pair.start] + changes[pair] + text[pair.end :]
    return text
