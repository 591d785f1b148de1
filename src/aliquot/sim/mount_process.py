"""Mounting a simulated node's kernel files, and unmounting them. A mount is its own process, which ends with the mount,
and unmounts when the node is stopped.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Sequence

from aliquot.errors import AliquotError, BlockedError, UsageError
from aliquot.foundation import bounded_process
from aliquot.foundation.descriptor_wait import wait_readable
from aliquot.sim import lifecycle as control
from aliquot.sim.mount import library, serve
from aliquot.sim.mount_source import MountPointSource

TYPE = "aliquot-sim"
"""The prefix of a mount's source in /proc/self/mounts; the node's name follows after a colon."""

_START_S = 20.0
_POLL_S = 0.25
_UNMOUNT_S = 60.0


def mount(state_dir: str, name: str, folder: str, points: Sequence[str] = (), lasting_s: float = 0.0) -> int:
    """Mount a node's files on an empty directory. Return the pid of the serving process. ``points`` are paths below it
    that must be empty directories; ``lasting_s`` is that of ``serve``.

    Raises UsageError for an unsuitable directory, and AliquotError if FUSE is missing or refuses.
    """
    library()
    where = os.path.abspath(folder)
    if not os.path.isdir(where):
        raise UsageError(f"{folder} is not a directory", next_step=f"mkdir {folder}")
    if mounted(where) is not None:
        raise UsageError(f"a node is mounted on {folder} already", next_step=f"aliquot sim umount {folder}")
    pipe, writable = os.pipe()
    words = (state_dir, name, where, str(lasting_s), *points)
    command = [sys.executable, "-P", "-m", "aliquot.sim.mount_process", *words]
    package = os.path.dirname(os.path.dirname(sys.modules["aliquot"].__path__[0] + "/x"))
    search = os.pathsep.join(p for p in (package, os.environ.get("PYTHONPATH", "")) if p)
    pid = bounded_process.start(command, writable, env={**os.environ, "PYTHONPATH": search}, cwd="/")
    os.close(writable)
    output = _startup_output(pipe)
    os.close(pipe)
    if mounted(where) is None:
        raise AliquotError(f"{name} cannot be mounted on {folder}", details=tuple(output.split("\n")[-3:]))
    return pid


def _startup_output(pipe: int) -> str:
    """Return the output of the process until it is ready (an empty line) or has ended."""
    text = b""
    deadline = time.monotonic() + _START_S
    while not text.endswith(b"\n\n") and text != b"\n":
        left = deadline - time.monotonic()
        if left <= 0 or not wait_readable(pipe, left):
            break
        chunk = os.read(pipe, 4096)
        if not chunk:
            break
        text += chunk
    return text.decode("utf-8", "replace").strip()


def unmount(folder: str) -> str:
    """Unmount a node's files. Return the node's name. Raises BlockedError if none is mounted there or a program uses
    it.
    """
    where = os.path.abspath(folder)
    name = mounted(where)
    if name is None:
        raise BlockedError(
            f"no simulated node is mounted on {folder}", code="NOT_MOUNTED", next_step="aliquot sim list"
        )
    tool = ["umount"] if os.geteuid() == 0 else ["fusermount3", "-u"]
    try:
        code, _, output = bounded_process.run([*tool, where], _UNMOUNT_S)
    except OSError as failure:  # includes TimeoutError
        code, output = 1, str(failure)
    if code:
        raise BlockedError(
            f"{folder} cannot be unmounted",
            code="MOUNT_BUSY",
            details=tuple(output.strip().splitlines()),
            next_step=f"fuser -vm {folder}",
        )
    return name


def mounted(folder: str) -> str | None:
    """Return the node that is mounted on a directory."""
    wanted = os.path.abspath(folder)
    with open("/proc/self/mounts", encoding="utf-8", errors="surrogateescape") as table:
        for row in table:
            source, where = row.split(" ")[:2]
            plain = where.encode("latin-1", "surrogateescape").decode("unicode_escape")
            if plain == wanted and source.startswith(TYPE + ":"):
                return source.partition(":")[2]
    return None


def main(state_dir: str, name: str, folder: str, lasting: str, *points: str) -> None:
    """Serve one mount until it is unmounted, the node is gone, or SIGTERM arrives."""
    source = MountPointSource(state_dir, name, points)
    directory = control.folder(state_dir, name)
    main_thread = threading.get_ident()

    def watch() -> None:
        identity = os.stat(directory).st_ino
        while True:
            time.sleep(_POLL_S)
            try:
                if os.stat(directory).st_ino == identity:
                    continue
            except FileNotFoundError:
                pass
            signal.pthread_kill(main_thread, signal.SIGTERM)  # libfuse's handler unmounts

    def ready() -> None:
        threading.Thread(target=watch, daemon=True).start()
        os.write(1, b"\n\n")
        quiet = os.open(os.devnull, os.O_RDWR)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)

    serve(source, folder, f"{TYPE}:{name}", ready, float(lasting))


if __name__ == "__main__":
    main(*sys.argv[1:])
