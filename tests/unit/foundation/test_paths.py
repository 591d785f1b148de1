"""Folders whose files another user could replace."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from aliquot.foundation.paths import unsafe_reason

UNPRIVILEGED_UID = 65534
ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="root changes the owner of folders")


def test_a_folder_of_this_user_is_not_foreign(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    assert unsafe_reason(str(tmp_path)) == ""


def test_a_folder_that_all_users_can_write_in_is(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    assert unsafe_reason(str(tmp_path)) == "all users can write in it"


@ROOT_ONLY
def test_a_folder_of_another_user_is(tmp_path: Path) -> None:
    os.chown(tmp_path, UNPRIVILEGED_UID, UNPRIVILEGED_UID)
    assert unsafe_reason(str(tmp_path)) == f"user {UNPRIVILEGED_UID} owns it"


@ROOT_ONLY
def test_a_folder_that_another_group_can_write_in_is(tmp_path: Path) -> None:
    os.chown(tmp_path, 0, UNPRIVILEGED_UID)
    tmp_path.chmod(0o775)
    assert unsafe_reason(str(tmp_path)) == f"group {UNPRIVILEGED_UID} can write in it"


@ROOT_ONLY
def test_another_users_link_to_a_folder_of_ours_is(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to("/")
    os.lchown(link, UNPRIVILEGED_UID, UNPRIVILEGED_UID)
    assert unsafe_reason(str(link)) == f"user {UNPRIVILEGED_UID} owns it"
