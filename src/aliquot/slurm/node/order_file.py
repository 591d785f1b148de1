"""The file by which slurmd sorts the records of a slot board (see ``files.slot_board``), beside slurm.conf.

It must exist for a slot board, and must not exist for any other node, because slurmd would then number that node's
devices by file instead of by type.
"""

from __future__ import annotations

import os

from aliquot.errors import BlockedError, ConfigError, StorageError
from aliquot.slurm.files import managed_block as block
from aliquot.slurm.files.slot_board import ORDER_FILE, is_board
from aliquot.slurm.node import config_files as files
from aliquot.slurm.node.change_record import write_file
from aliquot.slurm.node.request import SlurmNodeSettings

MOUNTS = "/proc/self/mountinfo"
_SHARED = ("nfs", "cifs", "smb", "lustre", "gpfs", "beegfs", "ceph", "gluster", "9p", "afs", "panfs", "wekafs")
"""Beginnings of the names of network file systems, with or without ``fuse.`` before them."""


def path(settings: SlurmNodeSettings) -> str:
    """Return the path of the file."""
    return os.path.join(settings.conf_dir, ORDER_FILE)


def differs(settings: SlurmNodeSettings) -> bool:
    """Report whether the file is missing for a slot board, or one of ours exists for another node."""
    exists = os.path.exists(path(settings))
    return not exists if settings.slots else exists and not files.content(path(settings))


def write(settings: SlurmNodeSettings) -> bool:
    """Create or remove the file, and report whether that was necessary. Raises StorageError."""
    if not differs(settings):
        return False
    if settings.slots:
        write_file(path(settings), b"", 0o644)
        return True
    try:
        os.unlink(path(settings))
    except OSError as error:
        raise StorageError(f"cannot remove {path(settings)}: {error.strerror}", next_step="run it as root") from error
    return True


def refuse_conflicts(settings: SlurmNodeSettings) -> tuple[str, ...]:
    """Return notes about other nodes of gres.conf that must not get this host's copy of the file.

    Raises ConfigError if the file is not ours, and BlockedError if such nodes read it now, because the directory is on
    a network file system.
    """
    if settings.slots and files.content(path(settings)):
        raise ConfigError(
            f"{path(settings)} is not empty: it replaces the GPUs that slurmd detects by others",
            details=("Slurm's own tests use it. Aliquot only uses an empty file of this name.",),
            next_step=f"mv {path(settings)} {path(settings)}.bak",
        )
    others = _other_nodes(settings)
    if not others or not (settings.slots or os.path.exists(path(settings))):
        return ()
    kind, other = ("a slot board", "is not") if settings.slots else ("not a slot board", "is")
    if is_shared(settings.conf_dir):
        raise BlockedError(
            f"{settings.name} would be {kind}, and {others[0]} {other}, but both read {path(settings)}",
            details=("slurmd numbers the devices of all of these nodes by that file or of none.",),
            next_step="give the nodes with a slot board their own directory, and name it with --conf-dir",
            code="ORDER_FILE",
        )
    names = ", ".join(others)
    return (f"{ORDER_FILE} belongs to this host's copy of {settings.conf_dir}: {names} must not share it",)


def _other_nodes(settings: SlurmNodeSettings) -> tuple[str, ...]:
    """Return the other nodes with a managed block of the other kind in gres.conf."""
    found = block.blocks(files.content(os.path.join(settings.conf_dir, "gres.conf")))
    return tuple(
        b.node for b in found if b.node != settings.name and b.lines and is_board(b.lines) is not settings.slots
    )


def is_shared(folder: str, mounts: str = MOUNTS) -> bool:
    """Report whether a directory is on a network file system, so that other hosts probably read it too."""
    best, kind = "", ""
    real = os.path.realpath(folder)
    try:
        with open(mounts, encoding="utf-8", errors="surrogateescape") as file:
            lines = file.read().splitlines()
    except OSError:
        return False
    for line in lines:
        head, _, tail = line.partition(" - ")
        point = head.split()[4].replace("\\040", " ")
        if len(point) >= len(best) and (real == point or real.startswith(f"{point.rstrip('/')}/")):
            best, kind = point, tail.split()[0]
    return kind.removeprefix("fuse.").startswith(_SHARED)
