"""Small files in the state directory, replaced whole: after a kill or a power loss it is the old one or the new one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from aliquot.errors import AliquotError, PermissionDeniedError, StorageError


def replace(path: str, body: bytes) -> None:
    """Make this the file's content; it is on disk when this returns. Raises StorageError, PermissionDeniedError."""
    folder, fresh = os.path.dirname(path), f"{path}.new"
    try:
        os.makedirs(folder, mode=0o755, exist_ok=True)
        with open(fresh, "wb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, path)
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as failure:
        raise denied(f"{path} cannot be written", failure) from failure


@contextmanager
def alone(path: str) -> Iterator[None]:
    """Nobody else, of no other process either, changes the file meanwhile. Raises as ``replace`` does."""
    import fcntl

    from aliquot.foundation.lock import private

    try:
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        handle = private(f"{path}.lock")
    except OSError as failure:
        raise denied(f"{path} cannot be written", failure) from failure
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def denied(brief: str, failure: OSError) -> AliquotError:
    """The error for a state file that cannot be read or written."""
    if isinstance(failure, PermissionError):
        return PermissionDeniedError(
            f"{brief}: {failure.strerror}", next_step="run it as root, or as the owner of that folder"
        )
    return StorageError(
        f"{brief}: {failure.strerror}", next_step="free space there, or make it writable, then run the command again"
    )
