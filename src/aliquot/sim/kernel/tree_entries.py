"""What a simulated tree is made of: folders that are filled when somebody looks, files that answer, links."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

Read = Callable[[], str]
Write = Callable[[str], None]


class WritableFile(NamedTuple):
    """What a written text does. ``gpu`` is the position of the GPU that it is about, -1 for none. A ``quiet`` one
    changes what files say, but not which there are.
    """

    gpu: int
    apply: Write
    quiet: bool = False


class File:
    """An attribute. Without ``read`` it can only be written, without ``write`` only be read. A ``binary`` one holds a
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
    """A folder. ``make`` gives its entries, once: a change of the node makes a new tree. ``find`` gives one of them
    where it is cheaper to have than all.
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
    """A file that always reads the same."""
    return File(lambda: value)


def line(value: Callable[[], object]) -> File:
    """A file of one line."""
    return File(lambda: f"{value()}\n")


def folder(entries: dict[str, Entry]) -> Dir:
    return Dir(lambda: entries)


def up(depth: int, target: str) -> SymbolicLink:
    """A relative link out of a folder that lies ``depth`` folders below /sys."""
    return SymbolicLink("../" * depth + target)
