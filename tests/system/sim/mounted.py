"""A simulated node mounted for the length of a test: its kernel files as every program sees them."""

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
    """Why nothing can be mounted here; empty where it can."""
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
    """The folder below which the node's /sys, /proc and /dev are. The node must be there until the end."""
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
    """Unmount; a program that has just ended may be in the way for a moment."""
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
    """The Files port over the mount."""
    with mounted(state_dir, node) as folder:
        yield RealFiles(folder)
