"""Contents of the image: a pinned base, locked packages with hashes, and a bill of materials that lists them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tools import build_lock

from aliquot import __version__

LOCKS = {
    build_lock.REQUIREMENTS: build_lock.needed(*build_lock.EXTRAS),
    build_lock.BUILD: build_lock.build_system(),
}
CONTAINERFILE = build_lock.CONTAINERFILE.read_text()


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_a_lock_agrees_with_the_project(lock: Path) -> None:
    # A locked version meets each requirement. Each locked package has hashes, and a requirement or another package
    # needs it.
    packages = {p.name: p for p in build_lock.read(lock.read_text())}
    for text in LOCKS[lock]:
        need = Requirement(text)
        locked = packages[canonicalize_name(need.name)]
        assert need.specifier.contains(locked.version), (
            f"{lock.name} has {locked.version}, pyproject.toml requires {text}"
        )
        assert "aliquot" in locked.parents, f"{need.name} is missing as a requirement: make lock"
    needed = {canonicalize_name(Requirement(text).name) for text in LOCKS[lock]}
    for package in packages.values():
        assert package.hashes, package.name
        assert set(package.parents) <= packages.keys() | {"aliquot"}, package.name
        assert ("aliquot" in package.parents) == (package.name in needed), f"{package.name}: make lock"
    assert "://" not in lock.read_text(), "the lock names hashes, not a registry"


def test_a_lock_without_a_hash_is_not_read() -> None:
    with pytest.raises(ValueError):
        build_lock.read("msgspec==0.20.0\n")
    with pytest.raises(ValueError):
        build_lock.read("msgspec==0.20.0 \\\n    --hash=md5:0\n")
    with pytest.raises(ValueError):
        build_lock.read("git+https://example.org/msgspec\n")


def test_the_bill_of_materials_is_current() -> None:
    wanted = build_lock.sbom(build_lock.REQUIREMENTS.read_text(), CONTAINERFILE, __version__)
    assert build_lock.SBOM.read_text() == wanted, "make lock"


def test_the_image_installs_nothing_that_is_not_locked() -> None:
    # Every stage uses the pinned base image. pip either gets a lock file or has no index.
    assert re.findall(r"(?m)^FROM (\S+)", CONTAINERFILE) == ["$BASE", "$BASE"]
    with pytest.raises(ValueError, match="pins no base"):
        build_lock.sbom("", "ARG BASE=debian:12-slim\n", "1")
    steps = re.findall(r"bin/pip (?:install|wheel) [^&\n]*", CONTAINERFILE.replace("\\\n", " "))
    assert len(steps) == 4
    for step in steps:
        assert "--require-hashes -r /lock/" in step or "--no-index" in step, step
    extras = next(iter(re.findall(r"/src\[(.*?)\]", CONTAINERFILE)), "")
    assert not extras, "extras come from the lock"
