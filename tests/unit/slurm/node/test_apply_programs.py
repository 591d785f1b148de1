"""Other users in the folders that a change writes: none can block it, and none can redirect it."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from aliquot.slurm.node import config_files as files
from aliquot.slurm.node.change_record import write_file


def test_another_user_cannot_hold_the_files_up(tmp_path: Path) -> None:
    # Any user can open /etc/slurm, and could therefore lock it.
    handle = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with files.locked(str(tmp_path)):
            assert (tmp_path / files.LOCK).stat().st_mode & 0o777 == 0o600
    finally:
        os.close(handle)


def test_a_link_in_the_way_leads_nowhere(tmp_path: Path) -> None:
    # The folder belongs to SlurmUser, and root writes to it.
    victim, target = tmp_path / "shadow", tmp_path / "gres.conf"
    victim.write_text("secret\n")
    (tmp_path / f"gres.conf.aliquot.{os.getpid()}").symlink_to(victim)
    write_file(str(target), b"lines\n", 0o644)
    assert (victim.read_text(), target.read_text()) == ("secret\n", "lines\n")
    assert not target.is_symlink()
