"""Debian 13's folder appears complete or not at all, and is made once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from . import prepare

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="preparing Debian 13 needs root")


class Bootstrap:
    """A replacement for the download. Counts calls and fails on request."""

    def __init__(self) -> None:
        self.made = 0
        self.fails = False

    def __call__(self, root: Path) -> None:
        self.made += 1
        (root / "usr/bin").mkdir(parents=True)
        if self.fails:
            raise prepare.MissingError("the mirror went away")
        (root / "usr/bin/slurmd").touch()


@pytest.fixture
def bootstrap(monkeypatch: pytest.MonkeyPatch) -> Bootstrap:
    made = Bootstrap()
    monkeypatch.setattr(prepare, "_bootstrap", made)
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/sbin/{name}")
    return made


def test_it_is_made_once_and_again_when_its_packages_change(
    tmp_path: Path, bootstrap: Bootstrap, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (prepare.prepare(tmp_path) / "usr/bin/slurmd").exists()
    prepare.prepare(tmp_path)
    assert bootstrap.made == 1
    monkeypatch.setattr(prepare, "PACKAGES", (*prepare.PACKAGES, "another"))
    prepare.prepare(tmp_path)
    assert bootstrap.made == 2
    assert sorted(os.listdir(tmp_path)) == [".lock", "trixie"]


def test_what_fails_leaves_the_previous_one_and_nothing_else(tmp_path: Path, bootstrap: Bootstrap) -> None:
    bootstrap.fails = True
    with pytest.raises(prepare.MissingError, match="mirror"):
        prepare.prepare(tmp_path)
    assert os.listdir(tmp_path) == [".lock"]
    (tmp_path / "trixie").mkdir()
    (tmp_path / "trixie/former").touch()
    with pytest.raises(prepare.MissingError, match="mirror"):
        prepare.prepare(tmp_path)
    assert (tmp_path / "trixie/former").exists()


def test_what_a_killed_run_left_is_removed(tmp_path: Path, bootstrap: Bootstrap) -> None:
    (tmp_path / ".new-killed/trixie/usr").mkdir(parents=True)
    prepare.prepare(tmp_path)
    assert sorted(os.listdir(tmp_path)) == [".lock", "trixie"]


def test_the_mirror_is_this_machines_own(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = "http://m.test/x http://m.test/debian-security/\nhttp://m.test/y http://m.test/debian/\n"
    monkeypatch.setattr(prepare, "_run", lambda *words: listed)
    assert prepare._mirror() == "http://m.test/debian"
    monkeypatch.setattr(prepare, "_run", lambda *words: "")
    with pytest.raises(prepare.MissingError, match="apt-get update"):
        prepare._mirror()
