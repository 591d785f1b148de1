"""Atomic replacement of files: after a kill or a power loss a file holds the old content or the new one."""

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
    """Replace the content of a file.

    ``durable`` syncs it to disk before this returns. ``owner`` is a user and a group id. The previous content is kept
    as ``old`` if a name is given and the file system has links. Creates missing directories. Raises OSError; then
    nothing has changed, unless only the sync of the directory failed.
    """
    folder, name = os.path.split(path)
    fresh = os.path.join(folder, f".{name}.{_thread()}.tmp")
    make_folder(folder, durable=durable)
    try:
        _unlink(fresh)  # left over, or a link that another user planted
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
            with suppress(OSError):  # a file system without links keeps only the new content
                _keep(path, old)
        rename(fresh, path)
    except BaseException:
        with suppress(OSError):
            _unlink(fresh)
        raise
    if durable:
        sync(folder or ".")


def rename(source: str, path: str) -> None:
    """Rename a complete file, or a device node, to its final name on the same file system. Raises OSError."""
    os.replace(source, path)


def make_folder(path: str, *, durable: bool = True) -> None:
    """Create a directory and its missing parents. ``durable`` makes them survive a power loss. Raises OSError."""
    missing: list[str] = []
    while path and not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for folder in reversed(missing):
        os.makedirs(folder, mode=0o755, exist_ok=True)
        if durable:
            sync(os.path.dirname(folder) or ".")


def sync(folder: str) -> None:
    """Sync a directory, so that renames in it survive a power loss. Raises OSError."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _keep(path: str, old: str) -> None:
    """Give the content of a file a second name. The file keeps its own name throughout."""
    second = os.path.join(os.path.dirname(path), f".{os.path.basename(old)}.{_thread()}.tmp")
    _unlink(second)
    try:
        os.link(path, second)
    except FileNotFoundError:
        return
    rename(second, old)
    _unlink(second)  # renaming a link over a link to the same file does nothing and leaves both


def _thread() -> int:
    from threading import get_native_id

    return get_native_id()


def _unlink(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)


def denied(brief: str, failure: OSError) -> StorageError:
    """Return the error for a state file that cannot be read or written."""
    if isinstance(failure, PermissionError):
        return StorageDeniedError(
            f"{brief}: {failure.strerror}", next_step="run it as root, or as the owner of that directory"
        )
    step = _STEPS.get(failure.errno or 0, "free space there, or make it writable")
    return StorageError(f"{brief}: {failure.strerror}", next_step=f"{step}, then run the command again")


_STEPS = {
    errno.ENOSPC: "free space there",
    errno.EDQUOT: "free space there, or raise the quota",
    errno.EROFS: "mount that file system writable",
    errno.EIO: "look for disk errors in the kernel log (dmesg)",
    errno.ELOOP: "remove the symbolic link at that path",
}
