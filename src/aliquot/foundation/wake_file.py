"""A file that other programs touch to wake a process, as ``touch -c FILE`` in a hook.

To touch a file never waits, whether or not a process watches it, and a lost wake costs only the pause until the next
poll. A FIFO would block a writer without a reader, and a socket needs a program that can write to one.
"""

from __future__ import annotations

import os

from aliquot.foundation import atomic_file


class WakeFile:
    """The file at ``path``. It is watched from its creation on."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._seen = 0

    def create(self, user: int = 0) -> None:
        """Create the file so that only this user and its owner can touch it. Raises StorageError."""
        try:
            os.makedirs(os.path.dirname(self.path) or ".", mode=0o755, exist_ok=True)
            file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
            try:
                os.fchmod(file, 0o644)
                if os.geteuid() == 0:
                    os.fchown(file, user, -1)
            finally:
                os.close(file)
        except OSError as failure:
            raise atomic_file.denied(f"{self.path} cannot be created", failure) from failure
        self.touched()

    def touched(self) -> bool:
        """Report whether the file was touched since the last call."""
        try:
            changed = os.stat(self.path).st_mtime_ns
        except OSError:
            return False
        seen, self._seen = self._seen, changed
        return changed != seen
