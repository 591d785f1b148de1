"""A simulated node's kernel files as a FUSE mount: the node's ``/sys``, ``/proc`` and ``/dev`` below one directory, for
programs that do not know the simulator.

Every operation is a request to the node, and nothing is cached here. A file that appears after a write is in the next
``ls``, and a refused write returns the kernel's errno. Files behave as in sysfs: one read and one write each. Nothing
can be created, renamed or removed, and the mode bits also apply to root.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol


class FileStat(NamedTuple):
    """The result of ``stat``: ``st_mode`` with its type, and the size in bytes that the kernel reports."""

    mode: int
    size: int = 0


class MountSource(Protocol):
    """A node's files by absolute path. A link is not followed. Every method raises OSError with the kernel's errno."""

    def stat(self, path: str) -> FileStat: ...

    def content(self, path: str) -> bytes: ...

    def write(self, path: str, text: str, pid: int) -> None:
        """Write a text. ``pid`` is the writing process."""
        ...

    def names(self, path: str) -> tuple[str, ...]: ...

    def link(self, path: str) -> str: ...


class FuseHandle(Protocol):
    """The state that libfuse keeps for an open file (its ``fuse_file_info``)."""

    flags: int
    fh: int
    direct_io: int


def _refusal(number: int) -> Callable[..., int]:
    def refuse(_self: FuseMount, *_arguments: object) -> int:
        raise OSError(number, os.strerror(number))

    return refuse


class FuseMount:
    """The operations that libfuse calls (its high-level API; mfusepy passes those that exist). Threads share it."""

    use_ns = True

    def __init__(
        self, source: MountSource, caller: Callable[[], int], ready: Callable[[], None] = lambda: None
    ) -> None:
        """Initialize the mount. ``caller`` returns the pid of the program that an operation is for. ``ready`` is called
        once, when it is mounted.
        """
        self._source = source
        self._caller = caller
        self._ready = ready
        self._since = time.time_ns()
        self._open: dict[int, bytes] = {}
        self._number = 0

    def init(self, _path: str) -> None:
        self._ready()

    def getattr(self, path: str, _fi: FuseHandle | None = None) -> dict[str, Any]:
        file_stat = self._source.stat(path)
        times = dict.fromkeys(("st_atime", "st_mtime", "st_ctime"), self._since)
        return {
            "st_mode": file_stat.mode,
            "st_nlink": 1,  # "unknown" to programs that count directories by links
            "st_size": file_stat.size,
            "st_uid": 0,
            "st_gid": 0,
            **times,
        }

    def readdir(self, path: str, _fh: int) -> Iterator[str]:
        yield from (".", "..", *self._source.names(path))

    def readlink(self, path: str) -> str:
        return self._source.link(path)

    def open(self, path: str, fi: FuseHandle) -> int:
        """Open a file like kernfs: root also needs a mode bit for the requested access."""
        mode = self._source.stat(path).mode
        access = fi.flags & os.O_ACCMODE
        if (access != os.O_WRONLY and not mode & 0o444) or (access != os.O_RDONLY and not mode & 0o222):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        fi.direct_io = 1
        self._number += 1
        fi.fh = self._number
        return 0

    def read(self, path: str, size: int, offset: int, fi: FuseHandle) -> bytes:
        """Read the attribute at offset 0. Further reads return parts of that value, as in sysfs."""
        if offset == 0 or fi.fh not in self._open:
            self._open[fi.fh] = self._source.content(path)
        return self._open[fi.fh][offset : offset + size]

    def write(self, path: str, data: bytes, _offset: int, _fi: FuseHandle) -> int:
        self._source.write(path, data.decode("utf-8", "replace"), self._caller())
        return len(data)

    def release(self, _path: str, fi: FuseHandle) -> int:
        self._open.pop(fi.fh, None)
        return 0

    def truncate(self, path: str, _length: int, _fi: FuseHandle | None = None) -> int:
        """Check only permissions: a shell truncates before it writes, and sysfs ignores that."""
        if not self._source.stat(path).mode & 0o222:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return 0

    def flush(self, _path: str, _fi: FuseHandle) -> int:
        return 0

    create = _refusal(errno.EACCES)
    mknod = mkdir = unlink = rmdir = rename = link = symlink = chmod = chown = utimens = _refusal(errno.EPERM)
    listxattr = getxattr = setxattr = _refusal(errno.ENOTSUP)


def serve(
    source: MountSource, folder: str, name: str, ready: Callable[[], None] = lambda: None, lasting_s: float = 0.0
) -> None:
    """Mount on ``folder``, as file system ``name``, and answer until it is unmounted or this process gets SIGTERM.

    Call it from the main thread. It executes one operation at a time, like a node's writes. ``lasting_s`` is how many
    seconds the kernel may cache existing entries; missing entries are looked up each time.

    Raises AliquotError without libfuse or its Python package, and RuntimeError if the mount is refused.
    """
    fuse = library()
    options: dict[str, Any] = dict.fromkeys(("attr_timeout", "entry_timeout", "ac_attr_timeout"), lasting_s)
    options["negative_timeout"] = 0
    if os.geteuid() == 0:
        options["allow_other"] = True  # programs that do not run as root need access, too
    mount = FuseMount(source, lambda: int(fuse.fuse_get_context()[2]), ready)
    fuse.FUSE(
        mount, folder, raw_fi=True, foreground=True, nothreads=True, fsname=name, default_permissions=True, **options
    )


def library() -> Any:
    """Return the module mfusepy. Raises AliquotError if the package or libfuse is missing."""
    from aliquot.errors import AliquotError

    try:
        import mfusepy
    except ImportError as error:
        raise AliquotError(
            "a simulated node cannot be mounted: the Python package mfusepy is not installed",
            next_step="pip install 'aliquot[mount]'",
        ) from error
    except OSError as error:  # "Unable to find libfuse"
        raise AliquotError(
            "a simulated node cannot be mounted: libfuse is not installed",
            details=(str(error),),
            next_step="apt-get install fuse3",
        ) from error
    return mfusepy
