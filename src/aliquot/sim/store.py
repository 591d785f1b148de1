"""The storage of a node's state: two files that are written in turn, so that one of them is complete at any time.

Each contains one line: step, checksum, state. Saving creates, renames and syncs nothing, which would cost up to a
millisecond per step. The state must outlive a killed server, but not a reboot of the host.
"""

from __future__ import annotations

import os
import zlib
from io import FileIO

import msgspec

from aliquot.foundation.lock import open_private
from aliquot.sim.state import NodeState

NAMES = ("state.a", "state.b")


class Store:
    """The state of one node on disk. ``state`` is the previous state, None in a new directory."""

    def __init__(self, directory: str) -> None:
        paths = [os.path.join(directory, name) for name in NAMES]
        # Closed with the last reference and not earlier: a running call may still have to save.
        self._files = [FileIO(open_private(path), "r+") for path in paths]
        found = [f for f in map(_read, self._files) if f is not None]
        self._step, self.state = max(found, key=lambda f: f[0], default=(0, None))

    def save(self, state: NodeState) -> None:
        """Save the state; afterwards another process, or this one after a restart, reads it."""
        self._step += 1
        text = msgspec.json.encode(state)
        line = b"%d %08x " % (self._step, zlib.crc32(text)) + text + b"\n"
        os.pwrite(self._files[self._step % len(self._files)].fileno(), line, 0)


def step(directory: str) -> int:
    """Return how often a node's state was saved, which other processes can poll cheaply; -1 if the node is gone."""
    newest = -1
    for name in NAMES:
        try:
            handle = os.open(os.path.join(directory, name), os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            continue  # never written, or the node was stopped
        try:
            word = os.pread(handle, 24, 0).partition(b" ")[0]
        finally:
            os.close(handle)
        newest = max(newest, int(word) if word.isdigit() else -1)
    return newest


def _read(file: FileIO) -> tuple[int, NodeState | None] | None:
    """Return the step and the state of one file, None if it was never or only partly written."""
    line = os.pread(file.fileno(), 1 << 24, 0).partition(b"\n")[0]
    step, _, rest = line.partition(b" ")
    check, _, text = rest.partition(b" ")
    if not text or check != b"%08x" % zlib.crc32(text):
        return None
    return int(step), msgspec.json.decode(text, type=NodeState)
