"""A file system that loses unsynced data: every state in which a power cut may leave a folder.

The model records the calls of ``os`` that create, sync, rename and remove files while they are executed for real. The
record determines the possible contents of the disk at each moment. POSIX guarantees little, and this model guarantees
no more:

- The content of a file is that of its last fsync. Later writes are there, in part, as zeros, or not at all.
- A name in a folder is as it was at the folder's last fsync. Any later changes may be lost, in any order.
- A rename is one change.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, combinations, takewhile
from pathlib import Path
from typing import Any

import msgspec
import pytest

ALL_SUBSETS = 4
"""Up to this many name changes are lost in every combination. Of more, each single one and each run of last ones."""
Content = dict[str, bytes]
"""The files of a folder by their paths below it."""


class Event(msgspec.Struct, frozen=True):
    """An event. ``kind``: ``write``, ``sync``, ``names`` (``changes`` in folder ``node``), ``mark``."""

    kind: str
    node: int = 0
    content: bytes = b""
    changes: tuple[tuple[str, int | None], ...] = ()
    mark: str = ""


class _Disk(msgspec.Struct):
    """The state in memory, and the part of it that is on disk. Folders and files are nodes, and the root is 0."""

    files: dict[int, bytes] = {}
    synced: dict[int, bytes] = {}
    folders: dict[int, dict[str, int]] = {}
    pending: list[tuple[int, tuple[tuple[str, int | None], ...]]] = []

    def happen(self, event: Event) -> None:
        if event.kind == "write":
            self.files[event.node] = event.content
        elif event.kind == "names":
            self.pending.append((event.node, event.changes))
        elif event.kind == "sync" and event.node in self.files:
            self.synced[event.node] = self.files[event.node]
        elif event.kind == "sync":
            for folder, changes in self.pending:
                if folder == event.node:
                    _change(self.folders, folder, changes)
            self.pending = [each for each in self.pending if each[0] != event.node]

    def after_the_cut(self) -> Iterator[Content]:
        """Yield every possible content after a power cut now."""
        for lost in _subsets(len(self.pending)):
            folders = {node: dict(names) for node, names in self.folders.items()}
            for n, (folder, changes) in enumerate(self.pending):
                if n not in lost:
                    _change(folders, folder, changes)
            paths = dict(_paths(folders, 0))
            for variant in range(4):
                yield {path: self._content(node, variant) for path, node in paths.items()}

    def _content(self, node: int, variant: int) -> bytes:
        safe, whole = self.synced.get(node, b""), self.files[node]
        common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(safe, whole, strict=False)))
        rest = whole[common:]
        return (safe, whole, whole[:common] + rest[: len(rest) // 2], whole[:common] + bytes(len(rest)))[variant]


def _change(folders: dict[int, dict[str, int]], folder: int, changes: Sequence[tuple[str, int | None]]) -> None:
    names = folders.setdefault(folder, {})
    for name, node in changes:
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


def _paths(folders: dict[int, dict[str, int]], folder: int, above: str = "") -> Iterator[tuple[str, int]]:
    for name, node in folders.get(folder, {}).items():
        if node < 0:
            yield from _paths(folders, node, f"{above}{name}/")
        else:
            yield f"{above}{name}", node


def _subsets(count: int) -> Iterator[Sequence[int]]:
    if count <= ALL_SUBSETS:
        yield from chain.from_iterable(combinations(range(count), n) for n in range(count + 1))
        return
    yield ()
    for n in range(count):
        yield (n,)
        yield range(n, count)


class PowerCuts:
    """Records the operations on files below ``root`` after ``start``. Files have numbers above 0, folders below 0, and
    the root is 0.
    """

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = os.path.realpath(root)
        self.events: list[Event] = []
        self._nodes: dict[str, int] = {}
        self._last: dict[int, bytes] = {}
        self._handles: dict[int, int] = {}
        self._made = 0
        self._begun = 0
        self._patch = monkeypatch

    def start(self) -> None:
        """Begin to record. Everything that exists now is on disk."""
        for folder, folders, files in os.walk(self.root):
            for name in (*folders, *files):
                self._name(os.path.join(folder, name), folder=name in folders)
        self._scan()
        self.events += [Event("sync", node) for node in {*self._nodes.values(), 0}]
        self._begun = len(self.events)
        for name in ("open", "mkdir", "fsync", "replace", "link", "unlink"):
            self._patch.setattr(os, name, self._recorded(name, getattr(os, name)))

    def mark(self, text: str) -> None:
        """Record that another event has happened, which must survive a power cut from here on."""
        self._scan()
        self.events.append(Event("mark", mark=text))

    def states(self) -> Iterator[tuple[Content, frozenset[str]]]:
        """Yield every distinct content that a power cut may leave, with the marks that preceded it."""
        disk, marks, seen = _Disk({}, {}, {}, []), set[str](), set[Any]()
        self._scan()
        for n, event in enumerate(self.events, 1):
            if event.kind == "mark":
                marks.add(event.mark)
            disk.happen(event)
            if n < self._begun:
                continue
            for content in disk.after_the_cut():
                key = frozenset(marks), tuple(sorted(content.items()))
                if key not in seen:
                    seen.add(key)
                    yield content, key[0]

    def _recorded(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            paths = [os.path.realpath(os.path.dirname(p) or ".") + "/" + os.path.basename(p) for p in _named(args)]
            ours = [path for path in paths if path.startswith(f"{self.root}/") or path == self.root]
            new = bool(ours) and not os.path.lexists(ours[-1])
            if ours or name == "fsync":
                self._scan()
            result = real(*args, **more)
            if name == "fsync":
                self._synced(args[0])
            elif ours:
                self._note(name, ours, new=new, result=result)
            return result

        return call

    def _synced(self, handle: int) -> None:
        if handle in self._handles:
            self.events.append(Event("sync", self._handles[handle]))

    def _note(self, name: str, paths: list[str], *, new: bool, result: Any) -> None:
        path = paths[-1]
        if name in ("open", "mkdir"):
            if new:
                self._name(path, folder=name == "mkdir")
            if name == "open":
                self._handles[result] = self._nodes.get(path, 0)
            return
        folder, base = os.path.split(path)
        if name == "unlink":
            changes: list[tuple[str, int | None]] = [(base, None)]
            del self._nodes[path]
        else:
            node = self._nodes[paths[0]]
            self._nodes[path] = node
            changes = [(base, node)]
            # Renaming one name of a file to another name of the same file does nothing.
            if name == "replace" and not os.path.lexists(paths[0]):
                del self._nodes[paths[0]]
                changes.append((os.path.basename(paths[0]), None))
        self.events.append(Event("names", self._nodes.get(folder, 0), changes=tuple(changes)))

    def _name(self, path: str, *, folder: bool) -> None:
        self._made += 1
        self._nodes[path] = -self._made if folder else self._made
        above, base = os.path.split(path)
        if not folder:
            self.events.append(Event("write", self._nodes[path]))
        self.events.append(Event("names", self._nodes.get(above, 0), changes=((base, self._nodes[path]),)))

    def _scan(self) -> None:
        """Record data that was written since the last scan, by any call."""
        done: dict[int, bytes] = {}
        for path, node in self._nodes.items():
            if node > 0:
                with open(path, "rb") as file:
                    done[node] = file.read()
        for node, content in done.items():
            if content != self._last.get(node, b""):
                self._last[node] = content
                self.events.append(Event("write", node, content))


def _named(args: Sequence[Any]) -> list[str]:
    return [os.fspath(each) for each in args[:2] if isinstance(each, str | os.PathLike)]


def put(content: Content, root: Path) -> Path:
    """Write a content to a folder."""
    for path, body in content.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(body)
    root.mkdir(parents=True, exist_ok=True)
    return root
