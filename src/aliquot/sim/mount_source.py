"""The source of a mount's files: requests over the node's socket."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from aliquot.sim import lifecycle as control
from aliquot.sim import store
from aliquot.sim.lifecycle import LineConnection
from aliquot.sim.mount import FileStat

_APPEAR_S = 0.05


class NodeSource:
    """The kernel's files of a node over its socket. Not thread-safe.

    A path of ten parts costs ten requests. Therefore a result is valid while the node has not changed (``store.step``,
    which is written before the node answers the request that changed it). For entries that appear over time it is valid
    for at most ``_APPEAR_S`` seconds. Contents are requested each time.
    """

    def __init__(self, state_dir: str, name: str) -> None:
        self._state_dir = state_dir
        self._directory = control.folder(state_dir, name)
        self._connection: LineConnection | None = None
        self._known: dict[tuple[str, str], Any] = {}
        self._step = -1
        self._until = 0.0

    def stat(self, path: str) -> FileStat:
        found = self._structure("stat", path)
        return FileStat(found["mode"], found["size"])

    def content(self, path: str) -> bytes:
        text = str(self._request("read", path))
        return text.encode("latin-1" if self._structure("stat", path)["binary"] else "utf-8")

    def names(self, path: str) -> tuple[str, ...]:
        return tuple(self._structure("names", path))

    def link(self, path: str) -> str:
        return str(self._structure("link", path))

    def write(self, path: str, text: str, pid: int) -> None:
        self._request("write", path, data=text, pid=pid)

    def _structure(self, op: str, path: str) -> Any:
        step, now = store.step(self._directory), time.monotonic()
        if step != self._step or now >= self._until:
            self._known, self._step, self._until = {}, step, now + _APPEAR_S
        found = self._known.get((op, path))
        if found is None:
            found = self._known[op, path] = self._request(op, path)
        return found

    def _request(self, op: str, path: str, **facts: object) -> Any:
        request = msgspec.json.encode({"do": "fs", "op": op, "path": path, **facts}).decode()
        code, _, text = self._line(f"control|{request}", repeatable=op != "write").partition("|")
        if code != "0":
            raise OSError(errno.EIO, text or code)
        answer = msgspec.json.decode(text, type=dict[str, Any])
        if answer.get("errno"):
            raise OSError(answer["errno"], os.strerror(answer["errno"]), path)
        return answer.get("value")

    def _line(self, line: str, repeatable: bool) -> str:
        """Send a request. A server that was killed is started again; a write that may have reached it is not sent
        twice.
        """
        for again in (True, False):
            try:
                if self._connection is None:
                    self._connection = self._connect()
                return self._connection.request(line)
            except (FileNotFoundError, ConnectionError) as gone:
                self._connection = None
                if not again or not (repeatable or isinstance(gone, BrokenPipeError | FileNotFoundError)):
                    break
        raise OSError(errno.EIO, "the simulated node does not answer")

    def _connect(self) -> LineConnection:
        if not os.path.isdir(self._directory):
            raise FileNotFoundError(self._directory)
        control.ensure_server(self._state_dir)
        return control.connect(self._directory, "nvml.sock")


class MountPointSource(NodeSource):
    """The node's files, and empty directories as mount points for other file systems."""

    def __init__(self, state_dir: str, name: str, points: Sequence[str]) -> None:
        super().__init__(state_dir, name)
        self._below: dict[str, set[str]] = {}
        for point in points:
            path = point
            self._below.setdefault(point, set())
            while path != "/":
                path, _, last = path.rpartition("/")
                path = path or "/"
                self._below.setdefault(path, set()).add(last)

    def stat(self, path: str) -> FileStat:
        return FileStat(stat.S_IFDIR | 0o755) if path in self._below else super().stat(path)

    def names(self, path: str) -> tuple[str, ...]:
        own = self._below.get(path)
        if own is None:
            return super().names(path)
        try:
            return tuple({*super().names(path), *own})
        except FileNotFoundError:
            return tuple(own)
