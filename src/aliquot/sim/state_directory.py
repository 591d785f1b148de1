"""The directory in which the simulator keeps its nodes. It is used only if no other user can change it, and by one
process at a time.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from aliquot.errors import StorageError
from aliquot.foundation.lock import open_private
from aliquot.foundation.paths import unsafe_reason


def unusable(base: str, reason: str) -> StorageError:
    """Return the error for a state directory that the simulator cannot use."""
    return StorageError(
        f"the simulator cannot use its state directory {base}: {reason}",
        next_step="set ALIQUOT_STATE_DIR to a directory that only you can write in",
    )


def require_own(*folders: str) -> None:
    """Raise StorageError for a directory whose files another user could replace, or that cannot be read."""
    for folder in folders:
        try:
            reason = unsafe_reason(folder)
        except OSError as error:
            raise unusable(folder, error.strerror or str(error)) from error
        if reason:
            raise unusable(folder, reason)


@contextmanager
def locked(base: str) -> Iterator[None]:
    """Create the directory if it is missing, and hold its lock. Raises StorageError."""
    try:
        os.makedirs(base, mode=0o700, exist_ok=True)
        require_own(base)
        os.close(open_private(os.path.join(base, "server.log")))  # refuses a symbolic link
        handle = open_private(os.path.join(base, "server.lock"))
    except OSError as error:
        raise unusable(base, f"{error.filename}: {error.strerror}") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
