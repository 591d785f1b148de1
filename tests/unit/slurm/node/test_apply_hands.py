"""Other hands in the folders that a change writes: nobody holds it up, nobody leads it elsewhere."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from aliquot.slurm.node import config_files as files
from aliquot.slurm.node.change_record import write_file


def test_nobody_else_can_hold_the_files_up(tmp_path: Path) -> None:
    """Everybody can open /etc/slurm, and so lock it."""
    handle = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with files.locked(str(tmp_path)):
            assert (tmp_path / files.LOCK).stat().st_mode & 0o777 == 0o600
    finally:
        os.close(handle)


def test_a_link_in_the_way_leads_nowhere(tmp_path: Path) -> None:
    """A folder of SlurmUser's, written by root."""
    victim, target = tmp_path / "shadow", tmp_path / "gres.conf"
    victim.write_text("secret\n")
    (tmp_path / f"gres.conf.aliquot.{os.getpid()}").symlink_to(victim)
    write_file(str(target), b"lines\n", 0o644)
    assert (victim.read_text(), target.read_text()) == ("secret\n", "lines\n")
    assert not target.is_symlink()
