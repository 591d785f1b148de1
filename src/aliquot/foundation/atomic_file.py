"""Files replaced whole: after a kill or a power loss there is the old content or the new one. The one way to do it."""

from __future__ import annotations

import errno
import os
from contextlib import suppress

from aliquot.errors import StorageDeniedError, StorageError


def replace(
    path: str,
    body: bytes,
    *,
    mode: int = 0o644,
    owner: tuple[int, int] | None = None,
    durable: bool = True,
    old: str = "",
) -> None:
    """Make this the file's content. ``durable``: it is on disk when this returns. ``owner`` is a user and a group id.
    What was there stays as ``old``, if that is given and links are possible. Missing folders are made. Raises OSError;
    then nothing changed, unless the folder alone could not be synced.
    """
    folder, name = os.path.split(path)
    fresh = os.path.join(folder, f".{name}.{_thread()}.tmp")
    make_folder(folder, durable=durable)
    try:
        _unlink(fresh)  # left over, or a link that another user laid for us
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(body)
            file.flush()
            os.fchmod(handle, mode)
            if owner is not None and owner != (os.geteuid(), os.getegid()):
                os.fchown(handle, *owner)
            if durable:
                os.fsync(handle)
        if old:
            with suppress(OSError):  # a file system without links keeps the new content alone
                _keep(path, old)
        rename(fresh, path)
    except BaseException:
        with suppress(OSError):
            _unlink(fresh)
        raise
    if durable:
        sync(folder or ".")


def rename(source: str, path: str) -> None:
    """Give what was made whole its name: a file on the same file system, or a device node. Raises OSError."""
    os.replace(source, path)


def make_folder(path: str, *, durable: bool = True) -> None:
    """Make a folder and those above it that are missing. ``durable``: a power loss leaves them. Raises OSError."""
    missing: list[str] = []
    while path and not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for folder in reversed(missing):
        os.makedirs(folder, mode=0o755, exist_ok=True)
        if durable:
            sync(os.path.dirname(folder) or ".")


def sync(folder: str) -> None:
    """Return when what was renamed in a folder outlives a power loss. Raises OSError."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _keep(path: str, old: str) -> None:
    """A second name for the content of a file; at no moment is it without its own."""
    second = os.path.join(os.path.dirname(path), f".{os.path.basename(old)}.{_thread()}.tmp")
    _unlink(second)
    try:
        os.link(path, second)
    except FileNotFoundError:
        return
    rename(second, old)
    _unlink(second)  # a link over a link to the same file does nothing and leaves both


def _thread() -> int:
    from threading import get_native_id

    return get_native_id()


def _unlink(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)


def denied(brief: str, failure: OSError) -> StorageError:
    """The error for a state file that cannot be read or written."""
    if isinstance(failure, PermissionError):
        return StorageDeniedError(
            f"{brief}: {failure.strerror}", next_step="run it as root, or as the owner of that folder"
        )
    step = _STEPS.get(failure.errno or 0, "free space there, or make it writable")
    return StorageError(f"{brief}: {failure.strerror}", next_step=f"{step}, then run the command again")


_STEPS = {
    errno.ENOSPC: "free space there",
    errno.EDQUOT: "free space there, or raise the quota",
    errno.EROFS: "mount that file system writable",
    errno.EIO: "look for errors of the disk in the kernel's log (dmesg)",
    errno.ELOOP: "remove the link that stands in the place of that file",
}
