"""The entries of a simulated tree: directories that are filled on access, computed files, links."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

Read = Callable[[], str]
Write = Callable[[str], None]


class WritableFile(NamedTuple):
    """The effect of a written text. ``gpu`` is the position of the affected GPU, -1 for none. A ``quiet`` write changes
    the content of files, but not which files exist.
    """

    gpu: int
    apply: Write
    quiet: bool = False


class File:
    """An attribute. Without ``read`` it is write-only, without ``write`` read-only. A ``binary`` one holds one
    character per byte. ``device``: a character device, which has no text.
    """

    __slots__ = ("binary", "device", "read", "write")

    def __init__(
        self, read: Read | None = None, write: WritableFile | None = None, binary: bool = False, device: bool = False
    ) -> None:
        self.read = read
        self.write = write
        self.binary = binary
        self.device = device

    @property
    def mode(self) -> int:
        if self.device:
            return 0o600
        return (0o444 if self.read else 0) | (0o200 if self.write else 0)


class SymbolicLink:
    __slots__ = ("target",)

    def __init__(self, target: str) -> None:
        self.target = target


class Dir:
    """A directory. ``make`` returns its entries once: a change of the node builds a new tree. ``find`` returns one of
    them if that is cheaper than all.
    """

    __slots__ = ("_entries", "_find", "_make")

    def __init__(self, make: Callable[[], dict[str, Entry]], find: Callable[[str], Entry | None] | None = None) -> None:
        self._make = make
        self._find = find
        self._entries: dict[str, Entry] | None = None

    @property
    def entries(self) -> dict[str, Entry]:
        if self._entries is None:
            self._entries = self._make()
        return self._entries

    def get(self, name: str) -> Entry | None:
        if self._entries is None and self._find is not None:
            return self._find(name)
        return self.entries.get(name)


Entry = Dir | File | SymbolicLink


def text(value: str) -> File:
    """Return a file with constant content."""
    return File(lambda: value)


def line(value: Callable[[], object]) -> File:
    """Return a file of one line."""
    return File(lambda: f"{value()}\n")


def folder(entries: dict[str, Entry]) -> Dir:
    return Dir(lambda: entries)


def up(depth: int, target: str) -> SymbolicLink:
    """Return a relative link from a directory that is ``depth`` levels below /sys."""
    return SymbolicLink("../" * depth + target)
