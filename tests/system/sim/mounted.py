"""A simulated node mounted for the duration of a test: its kernel files as every program sees them."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

from aliquot.errors import AliquotError
from aliquot.hardware.kernel_files import RealFiles
from aliquot.sim import mount
from aliquot.sim import mount_process as mounting


def missing() -> str:
    """Return why nothing can be mounted here, or "" if it can."""
    try:
        mount.library()
    except AliquotError as error:
        return error.brief
    if not os.path.exists("/dev/fuse"):
        return "there is no /dev/fuse"
    if os.geteuid() != 0 and shutil.which("fusermount3") is None:
        return "fusermount3 is not installed"
    return ""


@contextmanager
def mounted(state_dir: str, node: str) -> Iterator[str]:
    """Mount the node and yield the folder that contains its /sys, /proc and /dev. The node must exist until the end."""
    folder = tempfile.mkdtemp(prefix="aliquot-mnt-")
    try:
        mounting.mount(state_dir, node, folder)
        try:
            yield folder
        finally:
            _let_go(folder)
    finally:
        os.rmdir(folder)


def _let_go(folder: str) -> None:
    """Unmount. A program that has just ended may keep the mount busy for a moment."""
    for attempt in range(50):
        if mounting.mounted(folder) is None:
            return  # its node was stopped
        try:
            mounting.unmount(folder)
        except AliquotError:
            if attempt == 49:
                raise
            time.sleep(0.1)


@contextmanager
def mounted_files(state_dir: str, node: str) -> Iterator[RealFiles]:
    """Yield the Files port over the mount."""
    with mounted(state_dir, node) as folder:
        yield RealFiles(folder)
